"""Imports and cimports point down: headers -> kernels -> records | protocol -> engine -> net -> consumer and its neighbours.

Read from the sources, not from a running interpreter: an import inside a function or under TYPE_CHECKING points upwards just
as much.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

# The unit is what stands directly under fastfetch/. A unit imports only units of a lower layer, never one beside it.
LAYER = {
    "kernels": 1,
    "records": 2,
    "protocol": 2,
    "engine": 3,
    "net": 4,
    "core": 5,
    "duties": 5,
    "calls": 5,
    "consumer": 5,
    "aio": 5,
    "ranges": 5,
    "log": 5,
    "segments": 5,
    "columns": 5,
    "adapters": 5,
    "benchmark": 5,
    "assignors": 5,
    "testing": 5,
    "cli": 5,
    # The package itself and `python -m fastfetch` gather everything.
    "fastfetch": 6,
    "__main__": 6,
}

# Beside the layers: every unit may use them, and they use the standard library and each other.
FOUNDATION = {"errors", "types", "config"}

# The manners of layer 5 are for one another only where the one is made of the other.
NEIGHBOURS = {
    ("calls", "core"),
    ("calls", "duties"),
    ("duties", "core"),
    ("consumer", "duties"),
    ("aio", "duties"),
    ("consumer", "calls"),
    ("consumer", "core"),
    ("aio", "calls"),
    ("aio", "core"),
    ("adapters", "consumer"),
    ("adapters", "aio"),
    ("adapters", "duties"),  # what counts as a poll
    ("adapters", "core"),  # consumers of other manners are made of the same parts
    ("benchmark", "consumer"),
    ("benchmark", "adapters"),  # they are measured too
    ("benchmark", "log"),  # bytes of segments are decoded as well as a topic's
    ("benchmark", "segments"),
    ("cli", "benchmark"),
    ("ranges", "consumer"),
    ("ranges", "core"),
    ("cli", "consumer"),
    ("cli", "core"),
    ("log", "segments"),  # one thing in two files
    ("cli", "log"),
    ("cli", "segments"),
    ("cli", "columns"),
    ("cli", "testing"),
    ("cli", "fastfetch"),  # for the version and build_info()
}

# What a unit may not know, by the first part of the module's name.
FORBIDDEN = {
    "kernels": {"numpy", "socket", "ssl", "time", "datetime", "threading", "asyncio", "random", "logging"},
    "records": {"socket", "ssl", "time", "datetime", "asyncio", "random", "selectors", "logging"},
    "protocol": {"numpy", "socket", "ssl", "time", "datetime", "threading", "asyncio", "random", "selectors", "kio"},
    "engine": {"socket", "ssl", "time", "datetime", "threading", "asyncio", "random", "selectors", "numpy", "queue", "os"},
}


@dataclass(frozen=True)
class Import:
    line: int
    module: str


def test_every_import_points_down(root: Path) -> None:
    found = list(violations(root / "fastfetch"))
    assert not found, "\n".join(found)


def test_every_unit_has_a_layer(root: Path) -> None:
    units = {unit_of(path.relative_to(root / "fastfetch")) for path in sources(root / "fastfetch")}
    assert units <= LAYER.keys() | FOUNDATION, "give it a place in LAYER, and in docs/architecture.md"
    assert {"kernels", "records", "protocol", "engine", "net"} <= units, "the sources were not found"


def test_the_reader_of_imports_sees_cimports(root: Path) -> None:
    """The rule above is only as good as the reader: it has to see what the kernels are known to use."""
    package = root / "fastfetch"
    seen = {edge.module for path in sources(package) if path.suffix == ".pyx" for edge in imports(path, package)}
    assert any(module.startswith("fastfetch.kernels") for module in seen)
    assert any(module.startswith("libc") for module in seen)


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("kernels/planted.pyx", "from fastfetch.records.block cimport RecordBlock", "kernels (layer 1) imports records"),
        ("kernels/planted.pxd", "cimport fastfetch.records.block", "kernels (layer 1) imports records"),
        ("kernels/planted.pyx", "from ..records.block cimport RecordBlock", "kernels (layer 1) imports records"),
        ("kernels/planted.pyx", "cimport numpy as np", "kernels imports numpy"),
        ("kernels/planted.pyx", "cdef f():\n    import numpy, os", "kernels imports numpy"),
        ("records/planted.py", "from fastfetch.protocol import tables", "records (layer 2) imports protocol"),
        ("records/planted.py", "from ..engine import fetcher", "records (layer 2) imports engine"),
        ("records/planted.py", "def f():\n    import time", "records imports time"),
        ("protocol/tables/planted.py", "from ...records import decode", "protocol (layer 2) imports records"),
        ("protocol/planted.py", "import kio.schema", "protocol imports kio"),
        ("engine/planted.py", "import socket", "engine imports socket"),
        ("engine/planted.py", "from time import monotonic", "engine imports time"),
        ("engine/planted.py", "import threading", "engine imports threading"),
        ("engine/planted.py", "import asyncio.events", "engine imports asyncio"),
        ("engine/planted.py", "from random import Random", "engine imports random"),
        ("engine/planted.py", "from fastfetch.net.connection import Connection", "engine (layer 3) imports net"),
        ("engine/planted.py", "if TYPE_CHECKING:\n    from ..net import thread", "engine (layer 3) imports net"),
        ("net/planted.py", "from fastfetch import consumer", "net (layer 4) imports consumer"),
        ("net/planted.py", "import fastfetch", "net (layer 4) imports fastfetch"),
        ("consumer.py", "from fastfetch.testing import Broker", "consumer (layer 5) imports testing"),
        ("log.py", "from . import consumer", "log (layer 5) imports consumer"),
        ("errors.py", "import numpy", "errors imports numpy"),
        ("types.py", "from fastfetch.records import Record", "types imports records"),
    ],
)
def test_a_wrong_import_is_caught(tmp_path: Path, file: str, text: str, why: str) -> None:
    package = plant(tmp_path, file, text)
    assert [said for said in violations(package) if why in said], list(violations(package))


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("kernels/planted.pyx", "from libc.stdint cimport uint8_t\nfrom fastfetch.kernels.frames cimport frame"),
        ("kernels/planted.pyx", '"""Used as:\n\n    from fastfetch.consumer import A\n"""\n# import numpy\nfrom . cimport wire'),
        ("records/planted.py", "import numpy\nfrom fastfetch.kernels import frames\nfrom fastfetch import errors"),
        ("protocol/planted.py", "from .tables import metadata\nfrom ..errors import ProtocolError"),
        (
            "engine/planted.py",
            "from fastfetch.records import decode\nfrom fastfetch.protocol import tables\nfrom .events import E",
        ),
        ("net/planted.py", "import socket, time\nfrom fastfetch.engine import fetcher"),
        ("cli/planted.py", "import fastfetch\nfrom fastfetch.testing import Broker"),
        ("errors.py", "import enum\nfrom fastfetch.types import TopicPartition"),
        ("__init__.py", "from fastfetch.consumer import Consumer"),
    ],
)
def test_a_right_import_is_not(tmp_path: Path, file: str, text: str) -> None:
    assert list(violations(plant(tmp_path, file, text))) == []


def test_headers_are_c_without_python_and_allocate_nothing(root: Path) -> None:
    headers = sorted((root / "include" / "fastfetch").glob("*.h"))
    assert headers
    for header in headers:
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", header.read_text(), flags=re.DOTALL)
        includes = set(re.findall(r'#\s*include\s*[<"]([^>"]+)', text))
        if header.name != "capi.h":
            assert "Python.h" not in includes, f"{header.name}: only capi.h may know Python"
        assert not re.search(r"\b(malloc|calloc|realloc|free)\s*\(", text), f"{header.name}: the headers allocate nothing"


# -------------------------------------------------------------------------------------------------- how imports are read


def plant(tmp_path: Path, file: str, text: str) -> Path:
    """A package of empty units with one file of ours in it."""
    package = tmp_path / "fastfetch"
    for unit in LAYER.keys() | FOUNDATION:
        (package / unit).mkdir(parents=True, exist_ok=True)
        (package / f"{unit}.py").touch()  # both a module and a package: a test may mean either
    for name in ("records", "protocol/tables"):
        (package / name).mkdir(exist_ok=True)
    (package / file).parent.mkdir(parents=True, exist_ok=True)
    (package / file).write_text(text)
    return package


def sources(package: Path) -> list[Path]:
    return sorted(path for path in package.rglob("*") if path.suffix in {".py", ".pyi", ".pyx", ".pxd"})


def unit_of(relative: Path) -> str:
    """The unit a file (relative to the package) belongs to."""
    first = relative.parts[0]
    if len(relative.parts) > 1:
        return first
    stem = relative.stem
    return "fastfetch" if stem == "__init__" else stem


def violations(package: Path) -> Iterator[str]:
    for path in sources(package):
        unit = unit_of(path.relative_to(package))
        if unit not in LAYER and unit not in FOUNDATION:
            yield f"{path.relative_to(package.parent)}: {unit} has no layer"
            continue
        for edge in imports(path, package):
            parts = edge.module.split(".")
            where = f"{path.relative_to(package.parent)}:{edge.line}"
            if parts[0] != package.name:
                if unit in FOUNDATION:
                    from sys import stdlib_module_names

                    if parts[0] not in stdlib_module_names:
                        yield f"{where}: {unit} imports {edge.module}, and it may only use the standard library"
                elif parts[0] in FORBIDDEN.get(unit, ()):
                    yield f"{where}: {unit} imports {edge.module}"
                continue
            target = parts[1] if len(parts) > 1 else "fastfetch"
            if target == unit or target in FOUNDATION or target == "_include":
                continue
            if unit in FOUNDATION:
                yield f"{where}: {unit} imports {target}, and it stands beside the layers"
            elif target not in LAYER:
                yield f"{where}: {target} has no layer"
            elif LAYER[target] >= LAYER[unit] and (unit, target) not in NEIGHBOURS:
                yield f"{where}: {unit} (layer {LAYER[unit]}) imports {target} (layer {LAYER[target]})"


def imports(path: Path, package: Path) -> list[Import]:
    here = [package.name, *path.relative_to(package).parts[:-1]]
    if path.suffix in {".py", ".pyi"}:
        return list(_python_imports(ast.parse(path.read_text(), str(path)), here, package))
    return list(_cython_imports(path.read_text(), here, package))


def _python_imports(tree: ast.AST, here: list[str], package: Path) -> Iterator[Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = _absolute("." * node.level + (node.module or ""), here)
            yield from (Import(node.lineno, name) for name in _from(module, [alias.name for alias in node.names], package))


FROM = re.compile(r"^[ \t]*from[ \t]+([.\w]+)[ \t]+c?import[ \t]+(\([^)]*\)|[^\n]*)", re.MULTILINE)
PLAIN = re.compile(r"^[ \t]*c?import[ \t]+([^\n(]+)$", re.MULTILINE)
TEXT = re.compile(r'"""(?:\\.|[^\\])*?"""|\'\'\'(?:\\.|[^\\])*?\'\'\'|#[^\n]*', re.DOTALL)


def _cython_imports(text: str, here: list[str], package: Path) -> Iterator[Import]:
    """Cython's grammar is not Python's: strings and comments are blanked, line numbers kept, and the statements matched."""
    text = TEXT.sub(lambda found: "\n" * found.group().count("\n"), text)
    for found in FROM.finditer(text):
        names = [word.split()[0] for word in found.group(2).strip("() \n").replace("\n", " ").split(",") if word.split()]
        line = text.count("\n", 0, found.start()) + 1
        yield from (Import(line, name) for name in _from(_absolute(found.group(1), here), names, package))
    for found in PLAIN.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield from (Import(line, word.split()[0]) for word in found.group(1).split(",") if word.split())


def _absolute(module: str, here: list[str]) -> str:
    level = len(module) - len(module.lstrip("."))
    if not level:
        return module
    base = here[: len(here) - level + 1]
    rest = module[level:]
    return ".".join([*base, rest] if rest else base)


def _from(module: str, names: list[str], package: Path) -> list[str]:
    """``from fastfetch import errors`` is an import of a submodule; any other name is an import of the package itself."""
    if module != package.name:
        return [module]
    known = LAYER.keys() | FOUNDATION
    return [f"{module}.{name}" if name in known else module for name in names]
