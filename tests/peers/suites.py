"""The clients' own test suites, run with our adapters in their place.

    python tests/peers/suites.py [kafka-python | aiokafka | "aiokafka without extensions"]

Each suite runs twice against the installed release of its client, alone and with the adapter, in processes of its own; what
passes alone has to pass with the adapter, or the difference is among the known ones and says why.

The sources come from the folder that FASTFETCH_PEERS names (a checkout or git directory per client, `kafka-python` and
`aiokafka`), else as a shallow clone of the release's tag, kept in the user's cache with the pytest plugins they need. Nothing of
them is copied into this repository, and their plugins never become those of our own tests.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

__all__ = ["SUITES", "Comparison", "Suite", "UnavailableError", "compare"]

HERE = Path(__file__).resolve().parent
RUN_SECONDS = 900


class UnavailableError(Exception):
    """The sources or a plugin can't be had here; one line says which."""


@dataclass(frozen=True)
class Suite:
    """Tests of one client.

    client      distribution name
    repository  to clone from, if FASTFETCH_PEERS does not say
    paths       what is run, relative to its checkout, as far as this release has it
    plugin      module beside this file that puts the adapter in place
    packages    pytest plugins it needs
    options     further arguments to pytest
    known       {test id or a part of it: why it differs with the adapter}
    variables   of the environment, for both runs
    variant     what distinguishes it from other suites of the same client
    """

    client: str
    repository: str
    paths: tuple[str, ...]
    plugin: str
    packages: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    known: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    variant: str = ""

    @property
    def name(self) -> str:
        return f"{self.client} {self.variant}".strip()


AIOKAFKA = Suite(
    client="aiokafka",
    repository="https://github.com/aio-libs/aiokafka",
    paths=("tests/record", "tests/test_codec.py", "tests/test_fetcher.py", "tests/test_subscription_state.py"),
    plugin="swap_aiokafka",
    packages=("pytest-asyncio",),
    options=("-p", "without_docker", "-p", "pytest_asyncio", "-o", "asyncio_mode=auto"),
    # Its checkout has a package of the client's name, without the compiled part: the current folder is not to be searched.
    variables={"PYTHONSAFEPATH": "1"},
)

SUITES = {
    suite.name: suite
    for suite in (
        Suite(
            client="kafka-python",
            repository="https://github.com/dpkp/kafka-python",
            paths=(
                "test/record",
                "test/test_codec.py",
                "test/consumer/test_fetcher.py",
                "test/consumer/test_subscription_state.py",
                "test/consumer/test_fetcher_mock_broker.py",
                "test/consumer/test_consumer.py",
                "test/consumer/test_coordinator.py",
                "test/test_mock_broker.py",
                *(f"test/test_{what}.py" for what in ("fetcher", "subscription_state", "consumer", "coordinator")),  # in 2.x
            ),
            plugin="swap_kafka_python",
            packages=("pytest-mock",),
            known={
                "test_fetcher::test__unpack_records_corrupted": (
                    "patches validate_crc() of a class that is not used any more; of format 2 it says True whatever the record is"
                ),
            },
        ),
        AIOKAFKA,
        replace(AIOKAFKA, variant="without extensions", variables={**AIOKAFKA.variables, "AIOKAFKA_NO_EXTENSIONS": "1"}),
    )
}


@dataclass(frozen=True)
class Comparison:
    """Outcomes by test id: "passed", "failed" or "skipped"."""

    suite: Suite
    alone: dict[str, str]
    adapted: dict[str, str]

    @property
    def passed_alone(self) -> list[str]:
        return [test for test, outcome in self.alone.items() if outcome == "passed"]

    @property
    def lost(self) -> list[str]:
        """Tests that pass alone and not with the adapter."""
        return [test for test in self.passed_alone if self.adapted.get(test) != "passed"]

    @property
    def share(self) -> float:
        """Of what passes alone, the part that passes with the adapter, 0 .. 1."""
        return 1 - len(self.lost) / len(self.passed_alone)

    @property
    def unexplained(self) -> list[str]:
        return [test for test in self.lost if self.reason(test) is None]

    @property
    def outdated(self) -> list[str]:
        """Known differences that are none any more."""
        return [name for name in self.suite.known if not any(name in test for test in self.lost)]

    def reason(self, test: str) -> str | None:
        return next((why for name, why in self.suite.known.items() if name in test), None)


def compare(suite: Suite) -> Comparison:
    """Run a suite twice. Raises UnavailableError where it can't be had."""
    source = _source(suite)
    packages = _packages(suite)
    return Comparison(suite, _run(suite, source, packages, adapted=False), _run(suite, source, packages, adapted=True))


def _cache() -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fastfetch" / "peers"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))


def _do(what: str, *command: str | Path) -> str:
    """Output of a command; UnavailableError, with the last line of what it said, if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"{what}: {error}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise UnavailableError(f"{what}: {said[-1] if said else done.returncode}")
    return done.stdout


def _tag(suite: Suite, names: str) -> str:
    """The installed release's tag, or the newest before it of the same series: not every release has one."""
    installed = _numbers(version(suite.client))
    tags = [tag for tag in re.findall(r"\bv?\d+\.\d+\.\d+$", names, re.MULTILINE) if _numbers(tag)[:2] == installed[:2]]
    fitting = [tag for tag in tags if _numbers(tag) <= installed]
    if not fitting:
        raise UnavailableError(f"there is no tag for {suite.client} {version(suite.client)}")
    return max(fitting, key=_numbers)


def _source(suite: Suite) -> Path:
    """A checkout of the client's tests."""
    given = os.environ.get("FASTFETCH_PEERS")
    if given:
        folder = Path(given) / suite.client
        repository = next((path for path in (folder, folder / ".git") if (path / "HEAD").is_file()), None)
        if repository is None:
            if not (folder / suite.paths[0]).exists():
                raise UnavailableError(f"FASTFETCH_PEERS: {folder} is no checkout and no git directory of {suite.client}")
            return folder
        git: tuple[str | Path, ...] = ("git", f"--git-dir={repository}")
        tag = _tag(suite, _do(f"the tags of {repository}", *git, "tag"))
        return _unpacked(suite, tag, *git, "archive", "--format=tar", tag)
    listed = _do(f"the tags of {suite.repository}", "git", "ls-remote", "--tags", "--refs", suite.repository)
    tag = _tag(suite, listed)
    folder = _cache() / f"{suite.client}-{tag}"
    if not folder.is_dir():
        half = folder.with_name(f"{folder.name}.{os.getpid()}")
        _do(f"the sources of {suite.client} {tag}", "git", "clone", "-q", "--depth", "1", "--branch", tag, suite.repository, half)
        half.rename(folder)
    return folder


def _unpacked(suite: Suite, tag: str, *archive: str | Path) -> Path:
    folder = _cache() / f"{suite.client}-{tag}"
    if not folder.is_dir():
        half = folder.with_name(f"{folder.name}.{os.getpid()}")
        half.mkdir()
        _do(f"the sources of {suite.client} {tag}", *archive, "-o", half / "source.tar")
        shutil.unpack_archive(half / "source.tar", half, filter="data")
        half.rename(folder)
    return folder


def _packages(suite: Suite) -> Path:
    """A folder with the plugins this suite needs, outside of the environment that our own tests run in."""
    folder = _cache() / f"plugins-{suite.client}-{sys.version_info[0]}.{sys.version_info[1]}"
    if suite.packages and not folder.is_dir():
        half = folder.with_name(f"{folder.name}.{os.getpid()}")
        pip = (sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", half, *suite.packages)
        _do(f"{', '.join(suite.packages)} for the tests of {suite.client}", *pip)
        half.rename(folder)
    return folder


def _run(suite: Suite, source: Path, packages: Path, *, adapted: bool) -> dict[str, str]:
    report = _cache() / f"{suite.client}.{os.getpid()}.xml"
    plugin = ("-p", suite.plugin) if adapted else ()
    paths = [path for path in suite.paths if (source / path).exists()]
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-W", "ignore", "-c", os.devnull, "--rootdir", ".", "-p", "no:cacheprovider"),
        *(*plugin, f"--junit-xml={report}", "-o", "junit_family=xunit1", *suite.options, *paths),
    ]
    path = os.pathsep.join(map(str, (HERE, packages, HERE.parent.parent, os.environ.get("PYTHONPATH", ""))))
    try:
        done = subprocess.run(
            command,
            cwd=source,
            env={**os.environ, **suite.variables, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
            check=False,
        )
        if done.returncode not in (0, 1):  # 1: some tests failed
            raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
        return dict(map(_outcome, ElementTree.parse(report).iter("testcase")))
    finally:
        report.unlink(missing_ok=True)


def _outcome(case: ElementTree.Element) -> tuple[str, str]:
    """(test id, outcome) of one entry of the report."""
    bad = {child.tag for child in case} & {"failure", "error", "skipped"}
    return f"{case.get('classname')}::{case.get('name')}", "passed" if not bad else "skipped" if bad == {"skipped"} else "failed"


def main(names: Sequence[str]) -> int:
    """Print the figures; 1 if there is a difference that nobody has explained."""
    status = 0
    for name in names or SUITES:
        try:
            found = compare(SUITES[name])
        except UnavailableError as error:
            print(f"{name}: skipped: {error}")
            continue
        alone = len(found.passed_alone)
        kept = alone - len(found.lost)
        print(f"{name} {version(found.suite.client)}: {alone} tests pass alone, {kept} with the adapter: {found.share:.2%}")
        for test in found.lost:
            print(f"  {test}: {found.reason(test) or 'NOT EXPLAINED'}")
        status |= bool(found.unexplained)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
