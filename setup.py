"""Extensions, directives and flags; everything else is in pyproject.toml.

Environment: FASTFETCH_DEBUG=1 (assertions, -O0), FASTFETCH_SANITIZE=1 (ASan and UBSan), FASTFETCH_COVERAGE=1 (line tracing),
FASTFETCH_ANNOTATE=1 (Cython's HTML beside each .pyx), FASTFETCH_PREBUILT=1 (`build_ext --inplace` has just been run: an editable
install would compile everything once more, in a folder of its own).
"""

import os
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup


def flag(name: str) -> bool:
    return os.environ.get("FASTFETCH_" + name, "") not in ("", "0")


if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
    sys.exit(
        f"fastfetch needs Python.h to build, and {sys.executable} has none: install this Python's development package "
        "(python3-dev on Debian and Ubuntu, python3-devel on Fedora) or use a Python from python.org, uv, pyenv or conda"
    )

from Cython.Build import cythonize  # noqa: E402 - after the check that explains itself

cflags = ["-std=gnu99", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-unused-function"]
ldflags = []
macros = [("NDEBUG", "1")]
if flag("SANITIZE"):
    san = "-fsanitize=address,undefined"
    cflags += ["-O1", "-g", "-fno-omit-frame-pointer", san, "-fno-sanitize-recover=undefined"]
    ldflags += [san]
elif flag("DEBUG"):
    cflags += ["-O0", "-g"]
else:
    cflags += ["-O3"]
if flag("COVERAGE"):
    macros += [("CYTHON_TRACE_NOGIL", "1")]

root = Path(__file__).resolve().parent
sources = sorted(path.relative_to(root) for path in (root / "fastfetch").rglob("*.pyx"))
extensions = [
    Extension(
        ".".join(source.with_suffix("").parts),
        [str(source)],
        include_dirs=["include"],
        depends=[str(h.relative_to(root)) for h in (root / "include").rglob("*.h")],
        define_macros=macros,
        extra_compile_args=cflags,
        extra_link_args=ldflags,
    )
    for source in sources
]

setup(
    ext_modules=[]
    if flag("PREBUILT")
    else cythonize(
        extensions,
        include_path=["include"],
        annotate=flag("ANNOTATE"),
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
            "auto_pickle": False,
            "freethreading_compatible": True,
            "linetrace": flag("COVERAGE"),
        },
    )
)
