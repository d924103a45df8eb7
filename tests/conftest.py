"""The header that says what is under test, and the tools that several folders of tests share."""

from __future__ import annotations

import os
import platform
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

# FASTFETCH_ROUNDS scales every property test: the same tests are quick on each change and long before a release.
ROUNDS = float(os.environ.get("FASTFETCH_ROUNDS", "1"))
settings.register_profile(
    "fastfetch",
    deadline=None,  # a busy machine is not a failure
    max_examples=max(1, int(100 * ROUNDS)),
    derandomize="CI" in os.environ,  # a submission is judged by its own change, not by that day's seed
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("fastfetch")


def _versions(*names: str) -> str:
    def one(name: str) -> str:
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            return f"{name} missing"

    return ", ".join(one(name) for name in names)


def pytest_report_header() -> list[str]:
    try:
        import fastfetch

        lines = [f"fastfetch {fastfetch.__version__} in {Path(fastfetch.__file__).parent}"]
        lines += [f"  {key}: {value}" for key, value in fastfetch.build_info().items()]
    except (ImportError, AttributeError) as error:
        return [f"fastfetch cannot be imported ({error}): `make test` builds it, or setup.py build_ext --inplace"]
    lines.append(f"  built by {sysconfig.get_config_var('CC')} for {platform.machine()}, {_versions('cython', 'numpy')}")
    lines.append("  beside " + _versions("kio", "confluent-kafka", "aiokafka", "kafka-python", "lz4", "zstandard", "crc32c"))
    return lines


@pytest.fixture(scope="session")
def root() -> Path:
    """The top of the source tree."""
    return ROOT


@pytest.fixture(scope="session")
def tool_env() -> dict[str, str]:
    """An environment in which the tools of this Python are on PATH: cython-lint calls pycodestyle by name."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return os.environ | {"PATH": path}
