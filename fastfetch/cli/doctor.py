"""`kfetch doctor`: what this installation is made of, and which of the fast paths it has."""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

import fastfetch

__all__ = ["command"]

_PACKAGES = ("numpy", "crc32c", "lz4", "zstandard", "click", "rich")
# What the kernels look for, or could profit from.
_FEATURES = ("sse4_2", "pclmulqdq", "avx2", "avx512f", "avx512bw", "avx512vl", "vpclmulqdq", "crc32", "pmull", "asimd", "sve")


@click.command("doctor", short_help="Versions, CPU features, codec providers.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(as_json: bool) -> None:
    """Say what this installation is made of: versions, CPU features and the CRC path, where each codec comes from."""
    found = examine()
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for title, facts in found.items():
        click.echo(title)
        width = max(map(len, facts))
        for name, fact in facts.items():
            click.echo(f"  {name:<{width}}  {fact}")


def examine() -> dict[str, dict[str, str]]:
    """Everything doctor knows, in groups; JSON-able."""
    info = fastfetch.build_info()
    return {
        "versions": {"fastfetch": fastfetch.__version__, "python": sys.version.split()[0]} | {n: _version(n) for n in _PACKAGES},
        "platform": {
            "system": f"{platform.system()} {platform.release()}",
            "machine": platform.machine(),
            "libc": " ".join(platform.libc_ver()) or "unknown",
            "implementation": f"{platform.python_implementation()}, {_gil()}",
            "cpu": _cpu("model name") or platform.processor() or "unknown",
            "cpus usable": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
            "cpu features": " ".join(_features()) or "unknown",
        },
        "build": {"cython": str(info["cython"])},
        "crc32c": {"in use": str(info["crc32c"]), "usable here": " ".join(info["crc32c_paths"])},
        "codecs": {name: _provider(name, *found) for name, found in info["codecs"].items()},
        "paths": {"package": str(Path(fastfetch.__file__).parent), "headers": str(fastfetch.get_include())},
    }


def _provider(codec: str, provider: str, version: str) -> str:
    """Where a codec comes from, and why."""
    reasons = {
        "system": "the shared library was found; the GIL is free while it inflates",
        "python": "no usable shared library was found; the Python package is called with the GIL, batch by batch",
        "built-in": "a kernel of ours",
        "missing": f"neither a shared library nor a Python package was found: {codec} batches can't be read",
    }
    return f"{provider} {version}".strip() + f" ({reasons.get(provider, 'unknown provider')})"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _gil() -> str:
    enabled = getattr(sys, "_is_gil_enabled", None)
    return "with the GIL" if enabled is None or enabled() else "free-threaded"


def _features() -> list[str]:
    present = set((_cpu("flags") or _cpu("Features") or "").split())
    return [name for name in _FEATURES if name in present]


def _cpu(field: str) -> str | None:
    """A field of the first CPU in /proc/cpuinfo; None where there is no such file."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as stream:
            for line in stream:
                name, _, text = line.partition(":")
                if name.strip() == field:
                    return text.strip()
    except OSError:
        pass
    return None
