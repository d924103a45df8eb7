"""Builds the franz-go reader beside this file, once for each version of its source."""

from __future__ import annotations

import functools
import hashlib
import shutil
import subprocess
from pathlib import Path

from bench.corpus import OUT

__all__ = ["build"]

_HERE = Path(__file__).parent
_SOURCES = ("main.go", "go.mod", "go.sum")


@functools.cache
def build() -> Path | str:
    """The program; or, where it can't be built, one sentence that says why."""
    if shutil.which("go") is None:
        return "franz-go needs Go to be built, and there is no go on PATH"
    version = hashlib.sha256(b"".join((_HERE / name).read_bytes() for name in _SOURCES)).hexdigest()[:12]
    program = OUT / f"franz_go-{version}"
    if not program.exists():
        OUT.mkdir(exist_ok=True)
        try:
            done = subprocess.run(
                ["go", "build", "-o", str(program), "."], cwd=_HERE, capture_output=True, text=True, check=False, timeout=300
            )
        except subprocess.TimeoutExpired:
            return "franz-go could not be built within 300 s"
        if done.returncode:
            return f"franz-go could not be built: {(done.stderr.strip().splitlines() or ['go said nothing'])[-1]}"
    return program
