"""Every published case has a test, and every test that `cases.txt` names is there."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

LINES = [
    tuple(part.strip() for part in line.split("|"))
    for line in (Path(__file__).parent / "cases.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
CASES = [
    *(f"P{n:02}" for n in range(1, 15)),
    *(f"C{n:02}" for n in range(1, 10)),
    *(f"D{n:02}" for n in (1, 2, 3, 20, 23, 24)),
    *(f"G{n:02}" for n in range(1, 12)),
    *(f"N{n:02}" for n in range(1, 9)),
    *(f"R{n:02}" for n in range(1, 5)),
]


@cache
def names_in(path: Path) -> set[str]:
    """Names of the test functions of a file, read without importing it."""
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_every_case_has_a_line() -> None:
    assert set(CASES) == {what.split()[0] for what, _ in LINES}


@pytest.mark.parametrize(("what", "where"), LINES)
def test_the_tests_are_there(root: Path, what: str, where: str) -> None:
    if where.startswith("later: "):
        return
    for name in where.split(","):
        file, _, test = name.strip().partition("::")
        assert test in names_in(root / "tests" / file), f"{what}: there is no {test} in {file}"
