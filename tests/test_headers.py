"""The C headers stand alone: each compiles by itself as strict C99, and does what it says, also under the sanitizers."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
import zlib
from pathlib import Path

import crc32c
import pytest

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "include"
HEADERS = sorted(path.name for path in (INCLUDE / "fastfetch").glob("*.h"))
PROGRAMS = sorted(path.stem for path in (ROOT / "tests" / "c").glob("*.c"))
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-pedantic"]
SANITIZED = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
CC = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
CXX = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")

pytestmark = pytest.mark.skipif(CC is None, reason="no C compiler")


def compiled(arguments: list[str | Path]) -> subprocess.CompletedProcess[str]:
    assert CC is not None
    return subprocess.run([CC, *map(str, arguments)], capture_output=True, text=True, check=False)


def test_all_headers_are_here():
    assert {"codec.h", "columns.h", "crc32c.h", "fetch.h", "layout.h", "record_headers.h", "status.h", "wire.h"} <= set(HEADERS)


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_compiles_alone(header: str, tmp_path: Path):
    includes = ["-I", INCLUDE]
    if header == "capi.h":  # the one that speaks to Python; Python.h itself is not held to our warnings
        includes += ["-isystem", sysconfig.get_path("include")]
    source = tmp_path / "alone.c"
    # Twice: the guard has to work. And one external name, since an empty translation unit is not C.
    include = f'#include "fastfetch/{header}"\n'
    source.write_text(2 * include + "int alone(void);\nint alone(void) { return 0; }\n")
    done = compiled([*STRICT, "-Wno-unused-function", *includes, "-c", source, "-o", tmp_path / "alone.o"])
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(CXX is None, reason="no C++ compiler")
def test_the_headers_compile_as_cpp(tmp_path: Path):
    source = tmp_path / "all.cpp"
    use = "ff_decode_options options = FF_DECODE_DEFAULTS;\nconst ff_capi *import() { return ff_import(); }\n"
    source.write_text("".join(f'#include "fastfetch/{header}"\n' for header in HEADERS) + use)
    flags = ["-std=c++11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]
    command = [CXX, *flags, "-I", INCLUDE, "-isystem", sysconfig.get_path("include"), "-c", source, "-o", tmp_path / "all.o"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("header", [name for name in HEADERS if name != "capi.h"])
def test_a_header_knows_nothing_of_python(header: str):
    assert "Python.h" not in (INCLUDE / "fastfetch" / header).read_text()


@pytest.fixture(scope="session")
def sanitizers(tmp_path_factory: pytest.TempPathFactory) -> bool:
    folder = tmp_path_factory.mktemp("sanitizers")
    (folder / "empty.c").write_text("int main(void) { return 0; }\n")
    return compiled([*SANITIZED, folder / "empty.c", "-o", folder / "empty"]).returncode == 0


def run(program: str, flags: list[str], folder: Path) -> str:
    binary = folder / program
    done = compiled([*STRICT, "-Wno-unused-function", *flags, "-I", INCLUDE, ROOT / "tests" / "c" / f"{program}.c", "-o", binary])
    assert done.returncode == 0, done.stderr
    # Without what a sanitized test run preloads: the program has its own.
    ran = subprocess.run([binary], capture_output=True, text=True, env={"ASAN_OPTIONS": "detect_leaks=0"}, check=False)
    last = ran.stdout.splitlines()[-1] if ran.stdout else ""
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    assert last.endswith("checks, 0 failed")
    assert int(last.split()[0]) > 0
    return ran.stdout


@pytest.mark.parametrize("program", [name for name in PROGRAMS if name != "crc32c"])
@pytest.mark.parametrize("build", ["plain", "sanitized"])
def test_c_program(program: str, build: str, tmp_path: Path, sanitizers: bool):
    if build == "sanitized" and not sanitizers:
        pytest.skip("this compiler has no sanitizers")
    run(program, SANITIZED if build == "sanitized" else ["-O2"], tmp_path)


@pytest.mark.parametrize("build", ["plain", "sanitized"])
def test_crc_paths_agree_with_the_crc32c_package(build: str, tmp_path: Path, sanitizers: bool):
    """Lengths 0..300 and the thresholds of each path, at all alignments."""
    if build == "sanitized" and not sanitizers:
        pytest.skip("this compiler has no sanitizers")
    data = bytearray()
    seed = 12345
    for _ in range(70_000):
        seed = (seed * 1664525 + 1013904223) % 2**32
        data.append(seed >> 24)
    paths = set()
    for line in run("crc32c", SANITIZED if build == "sanitized" else ["-O2"], tmp_path).splitlines()[:-1]:
        path, alignment, length, found = line.split()
        piece = bytes(data[int(alignment) : int(alignment) + int(length)])
        wanted = zlib.crc32(piece) if path == "zlib" else crc32c.crc32c(piece)
        assert int(found, 16) == wanted, line
        paths.add(path)
    assert {"table", "zlib"} <= paths
