"""The linters and type checkers, as tests: each runs as `python -m`, and a failure shows what the tool said."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

# Extensions that have a stub. Cython's own attributes of a module are no part of it, and signatures of C functions differ in ways
# that no caller sees.
STUBTEST_ALLOWED = """
.*\\.__pyx_capi__
.*\\.__test__
.*\\.__reduce_cython__
.*\\.__setstate_cython__
.*\\.__pyx_.*
"""


def run(env: dict[str, str], root: Path, *arguments: str) -> None:
    """Run a module of this Python in the tree; what it printed is the failure."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=root,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"python -m {' '.join(arguments)}\n{done.stdout}", pytrace=False)


def test_ruff(root: Path, tool_env: dict[str, str]) -> None:
    run(tool_env, root, "ruff", "check", ".")


def test_mypy_strict(root: Path, tool_env: dict[str, str]) -> None:
    run(tool_env, root, "mypy")


def test_stubs_are_what_the_extensions_have(root: Path, tool_env: dict[str, str], tmp_path: Path) -> None:
    stubs = sorted((root / "fastfetch").rglob("*.pyi"))
    modules = [".".join(stub.relative_to(root).with_suffix("").parts) for stub in stubs]
    assert modules
    assert {source.with_suffix(".pyi") for source in (root / "fastfetch").rglob("*.pyx")} <= set(stubs), (
        "an extension without a stub"
    )
    allowed = tmp_path / "allowed"
    allowed.write_text(STUBTEST_ALLOWED)
    run(tool_env, root, "mypy.stubtest", "--concise", "--ignore-unused-allowlist", "--allowlist", str(allowed), *modules)


def test_cython_lint(root: Path, tool_env: dict[str, str]) -> None:
    sources = [str(path.relative_to(root)) for path in sorted((root / "fastfetch").rglob("*.p[yx][xd]"))]
    assert sources
    run(tool_env, root, "cython_lint.cython_lint", *sources)


def text_files(root: Path) -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=False)
    if listed.returncode:  # an unpacked sdist has no git
        pytest.skip("not a git checkout")
    files = [root / name for name in listed.stdout.splitlines()]
    return [file for file in files if file.is_file() and b"\0" not in file.read_bytes()[:4096]]


# Written in pieces, or this file would be its own first finding.
UNWANTED = {
    "an absolute path of one machine": r"(?<![\w./-])/(?:home|Users|root|work)/\w",
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE" + " KEY",
    "a token": r"\b(?:gh[pousr]_\w{30}|AKIA[0-9A-Z]{16}|xox[abp]-\w{10}|eyJ[\w-]{20,}\.[\w-]{20,}\.)",
    "work left for later": r"\b(?:TO" + "DO|FIX" + "ME|XX" + r"X)\b",
    "a conflict mark": r"^(?:<{7}|>{7}) ",
}


@pytest.mark.parametrize("what", UNWANTED)
def test_no_file_holds(root: Path, what: str) -> None:
    pattern = re.compile(UNWANTED[what], re.MULTILINE)
    found = []
    for file in text_files(root):
        text = file.read_text(errors="replace")
        found += [
            f"{file.relative_to(root)}:{text.count(chr(10), 0, hit.start()) + 1}: {hit.group()!r}"
            for hit in pattern.finditer(text)
        ]
    assert not found, f"{what}:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("what", "sample"),
    [
        ("an absolute path of one machine", "see /ho" + "me/me/x"),
        ("a private key", "-----BEGIN RSA PRIVATE" + " KEY-----"),
        ("a token", "gh" + "p_" + "a" * 36),
        ("work left for later", "# TO" + "DO later"),
        ("a conflict mark", "<" * 7 + " HEAD"),
    ],
)
def test_the_patterns_find_what_they_are_for(what: str, sample: str) -> None:
    assert re.search(UNWANTED[what], sample, re.MULTILINE)


# About 600 lines, and 400 for a kernel, are what one reads in one go; a file that wants much more wants to be two.
@pytest.mark.parametrize(("pattern", "limit"), [("*.py", 600), ("kernels/*.pyx", 400)])
def test_files_stay_small_enough_to_read(root: Path, pattern: str, limit: int) -> None:
    sizes = {path.relative_to(root): path.read_text().count("\n") for path in (root / "fastfetch").rglob(pattern)}
    assert sizes
    assert not {str(path): size for path, size in sizes.items() if size > limit}
