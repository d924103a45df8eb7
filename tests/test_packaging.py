"""What a user installs: an sdist, a wheel made from it, the wheel in an environment of its own, and strangers that build on it.

The wheel is built from an unpacked sdist, so a file that either of them lacks is missed here. Nothing of the source tree is in
reach of what runs in the throw-away environment; only its dependencies are borrowed, so that no test waits for a package index.

What is built is not optimised: that is most of the time of a build, and everything else tests what comes of it.
"""

from __future__ import annotations

import email
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import fastfetch
from fastfetch.testing import encode_batch

HERE = Path(__file__).parent
Python = Callable[..., str]

pytestmark = pytest.mark.timeout(1200)  # of the first test, that builds and installs, on a busy machine


def said(*command: object, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run a command; its output is the result, or the failure."""
    # As in a user's shell: the tree must not be found through a path of ours.
    clean = {key: value for key, value in (env or os.environ).items() if key not in {"PYTHONPATH", "LD_PRELOAD"}}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=clean, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        pytest.fail(f"{' '.join(words)}\n{done.stdout}", pytrace=False)
    return done.stdout


@pytest.fixture(scope="session")
def sdist(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source distribution of the files that git knows, or would know: the build must not depend on leftovers."""
    copy = tmp_path_factory.mktemp("tree")
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=root, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in listed.stdout.splitlines():
        if (root / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, copy / name)
    out = copy / "dist"
    said(sys.executable, "-c", "import sys, setuptools.build_meta as backend; backend.build_sdist(sys.argv[1])", out, cwd=copy)
    [made] = out.glob("*.tar.gz")
    return made


@pytest.fixture(scope="session")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    parallel = folder / "parallel.cfg"
    parallel.write_text(f"[build_ext]\nparallel = {os.cpu_count()}\n")
    env = os.environ | {"DIST_EXTRA_CONFIG": str(parallel), "FASTFETCH_DEBUG": "1"}
    said(
        sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-build-isolation",
        "-w", folder, sdist, cwd=folder, env=env,
    )  # fmt: skip
    [made] = folder.glob("*.whl")
    return made


@pytest.fixture(scope="session")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder from which the source tree cannot be seen."""
    return tmp_path_factory.mktemp("elsewhere")


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory, elsewhere: Path) -> Python:
    """A Python that has the wheel: called with arguments, it returns what was printed."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    said(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps", wheel, cwd=elsewhere)
    # Dependencies come from here. A .pth file in a folder that is itself named by a .pth file is not read, so an editable
    # fastfetch there stays out.
    [site] = folder.glob("lib/python*/site-packages")
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n" + sysconfig.get_path("platlib") + "\n")
    where = said(python, "-c", "import fastfetch; print(fastfetch.__file__)", cwd=elsewhere).strip()
    assert Path(where).is_relative_to(site)

    def run(*arguments: object) -> str:
        return said(python, *arguments, cwd=elsewhere, env=os.environ | {"CFLAGS": "-O0"})

    return run


def tree(root: Path, *suffixes: str) -> set[str]:
    return {str(path.relative_to(root)) for path in (root / "fastfetch").rglob("*") if path.suffix in suffixes}


def programs(root: Path) -> set[str]:
    """What `kfetch bench` builds on the user's machine: it is data here."""
    package = root / "fastfetch" / "benchmark"
    files = [path for folder in ("franz_go", "java", "") for path in (package / folder).glob("*") if path.is_file()]
    return {str(path.relative_to(root)) for path in files if path.parent != package or path.suffix == ".c"}


def test_the_wheel_ships_what_the_benchmarks_build(root: Path, wheel: Path) -> None:
    assert {"floor.c", "main.go", "go.mod", "go.sum", "pom.xml"} == {Path(name).name for name in programs(root)}
    assert programs(root) <= set(zipfile.ZipFile(wheel).namelist())


def test_the_wheel_ships_what_others_build_on(root: Path, wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    headers = {f"fastfetch/_include/{path.relative_to(root / 'include')}" for path in (root / "include").rglob("*.h")}
    assert {"wire.h", "layout.h", "crc32c.h", "status.h", "columns.h", "codec.h", "capi.h"} <= {
        Path(name).name for name in headers
    }
    assert headers <= names
    assert tree(root, ".pxd", ".pyi") <= names
    assert "fastfetch/py.typed" in names


def test_the_wheel_has_every_module_and_nothing_else(root: Path, wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    modules = tree(root, ".py") | {name.replace(".pyx", sysconfig.get_config_var("EXT_SUFFIX")) for name in tree(root, ".pyx")}
    assert modules <= names, "a package is missing from pyproject.toml"
    made = {".py", ".pyi", ".pxd", ".so", ".h", ".typed"}
    assert {Path(name).suffix for name in names if name not in programs(root)} == made
    assert {name.split("/")[0] for name in names} == {"fastfetch"}, "tests and benchmarks stay out"


def test_the_metadata(root: Path, wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    metadata = email.message_from_string(archive.read(name).decode())
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert metadata["Version"] == project["version"]
    assert metadata["License-Expression"] == "Apache-2.0"
    needs = {need.split(">")[0].strip() for need in metadata.get_all("Requires-Dist", []) if "extra ==" not in need}
    assert needs == {"numpy", "crc32c", "lz4", "zstandard", "click", "rich"}, "docs/architecture.md says why of each"
    assert archive.read(name.replace("METADATA", "licenses/LICENSE"))
    assert "kfetch = fastfetch.cli:main" in archive.read(name.replace("METADATA", "entry_points.txt")).decode()


def test_the_sdist_has_sources_and_no_generated_c(root: Path, sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert tree(root, ".py", ".pyx", ".pxd", ".pyi") <= names
    assert programs(root) <= names
    assert not {name for name in names - programs(root) if name.startswith("fastfetch/") and name.endswith((".c", ".so"))}


def test_get_include_installed_and_in_the_tree(root: Path, installed: Python) -> None:
    there = Path(installed("-c", "import fastfetch; print(fastfetch.get_include())").strip())
    assert (there / "fastfetch" / "wire.h").read_text() == (root / "include" / "fastfetch" / "wire.h").read_text()
    assert not there.is_relative_to(root)
    here = Path(fastfetch.get_include())
    assert (here / "fastfetch" / "wire.h").is_file()
    assert here == root / "include" or "site-packages" in here.parts or "sanitize" in here.parts


def test_the_installed_package_decodes_and_says_how(installed: Python) -> None:
    program = (
        "import sys, fastfetch; d = fastfetch.decode(bytes.fromhex(sys.argv[1])); d.raise_for_error();"
        "print([(r.offset, r.key, r.value) for b in d.blocks for r in b], d.next_offset, bool(fastfetch.build_info()))"
    )
    batch = encode_batch([(b"k", b"v")], base_offset=5, codec="lz4")
    assert installed("-c", program, batch.hex()).strip() == "[(5, b'k', b'v')] 6 True"


def test_both_commands_are_there(installed: Python) -> None:
    assert installed("-c", "import fastfetch; print(fastfetch.__version__)").strip() in installed("-m", "fastfetch", "--version")
    kfetch = Path(installed("-c", "import sys; print(sys.prefix)").strip()) / "bin" / "kfetch"
    assert "kfetch" in said(kfetch, "--help", cwd=kfetch.parent)


# --------------------------------------------------------------------------------------------------- strangers build on it


@pytest.fixture(scope="session")
def strangers(root: Path, elsewhere: Path) -> Path:
    """examples/c_api, and what compares them with Python, where nothing else of the source tree is."""
    ignore = shutil.ignore_patterns("build", "*.egg-info", "*.so", "segments", "hours.c", "longs.c")
    shutil.copytree(root / "examples" / "c_api", elsewhere / "c_api", ignore=ignore)
    shutil.copy(HERE / "c_api" / "agree.py", elsewhere)
    return elsewhere


@pytest.mark.parametrize(
    ("project", "module"), [("plain_c", "keysizes"), ("cython_blocks", "longs"), ("cython_kernels", "hours")]
)
def test_an_outside_extension(installed: Python, strangers: Path, project: str, module: str) -> None:
    """Built by pip against the installed package, and it finds what Python finds."""
    pip = ("-m", "pip", "install", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-build-isolation")
    installed(*pip, strangers / "c_api" / project)
    installed("agree.py", module)


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
def test_a_program_that_embeds_python(installed: Python, strangers: Path, tmp_path: Path) -> None:
    libraries = Path(sysconfig.get_config_var("LIBDIR"))
    if not any(libraries.glob(f"libpython{sysconfig.get_config_var('LDVERSION')}.*")):
        pytest.skip(f"this Python's library is not in {libraries}")
    python = installed("-c", "import sys; print(sys.executable)").strip()
    said("make", f"PYTHON={python}", cwd=strangers / "c_api" / "embedded")
    installed("agree.py", "segments", strangers / "c_api" / "embedded" / "segments", tmp_path)


def test_plain_c_stays_free_of_warnings(include: str, strangers: Path) -> None:
    source = strangers / "c_api" / "plain_c" / "keysizes.c"
    compiler = sysconfig.get_config_var("CC").split()
    flags = ["-std=gnu99", "-O1", "-fsyntax-only", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"]
    said(*compiler, *flags, f"-I{include}", "-isystem", sysconfig.get_path("include"), source, cwd=strangers)


@pytest.fixture(scope="session")
def include(installed: Python) -> str:
    return installed("-c", "import fastfetch; print(fastfetch.get_include())").strip()


# --------------------------------------------------------------------------------------------------------- and type-check it


def test_a_consumer_type_checks_against_the_installed_wheel(installed: Python, elsewhere: Path) -> None:
    """Strict mypy over a user's program. Lines marked `# error:` have to be refused: a stub of Any would accept them all."""
    program = elsewhere / "typed_consumer.py"
    shutil.copy(HERE / "typing" / "typed_consumer.py", program)
    python = installed("-c", "import sys; print(sys.executable)").strip()
    words = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-incremental",
        "--config-file=",
        "--python-executable",
        python,
        program.name,
    ]
    done = subprocess.run(words, cwd=elsewhere, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    expected = {n for n, line in enumerate(program.read_text().splitlines(), 1) if "  # error:" in line}
    refused = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    assert refused == expected, done.stdout
