"""Clients that are no Python: franz-go's as a program of ours (franz_go/main.go) that Go builds, and Java's as Kafka's own
ConsumerPerformance.

What is built or fetched for them is kept in the user's cache, `$XDG_CACHE_HOME/fastfetch/bench`. Like the others they run as a
command that prints a `Turn`:

    franz_go JOB
    python -m fastfetch.benchmark.external JOB      # runs Java, and reads what it prints
"""

from __future__ import annotations

import csv
import functools
import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fastfetch.benchmark.clients import FETCH_BYTES, Job, Turn

__all__ = ["EXTERNAL", "External", "ToolError", "cache_folder", "python"]

_HERE = Path(__file__).parent
_BUILD_SECONDS = 300
_FETCH_MAX_BYTES = 64 << 20


class ToolError(Exception):
    """A program that is needed is not here, or failed; the message is one sentence."""


@dataclass(frozen=True)
class External:
    """How to run one.

    prepare    builds or fetches it, once; raises ToolError
    command    of a turn
    versions   of what it is made of, after `prepare`
    settings, call    for the report, as of the other clients
    follows    it can tell how old records are
    """

    prepare: Callable[[], object]
    command: Callable[[Job], list[str]]
    versions: Callable[[], dict[str, str]]
    settings: Mapping[str, Any]
    call: str
    follows: bool

    def missing(self) -> str | None:
        """One sentence on why it can't be tried here, or None."""
        try:
            self.prepare()
        except ToolError as error:
            return str(error)
        return None


def cache_folder() -> Path:
    """Where built programs are kept, made if need be."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fastfetch" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module. Unlike -m alone it imports nothing from the folder that the user happens to be in."""
    return [sys.executable, "-P", "-m", module, *arguments]


def _said(command: list[str], what: str, cwd: Path | None = None) -> str:
    """What a command printed. Raises ToolError with the last line of it."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_BUILD_SECONDS, cwd=cwd
        )
    except subprocess.TimeoutExpired:
        raise ToolError(f"{what} within {_BUILD_SECONDS} s") from None
    if done.returncode:
        last = ((done.stderr.strip() or done.stdout.strip()).splitlines() or [f"{command[0]} said nothing"])[-1]
        raise ToolError(f"{what}: {last}")
    return done.stdout


# --- franz-go -----------------------------------------------------------------------------------------------------------

_GO = _HERE / "franz_go"
_GO_FILES = ("main.go", "go.mod", "go.sum")


@functools.cache
def _franz_go() -> Path:
    """The program, built once for each version of its source."""
    if shutil.which("go") is None:
        raise ToolError("franz-go: it needs Go to be built, and there is no go on PATH")
    version = hashlib.sha256(b"".join((_GO / name).read_bytes() for name in _GO_FILES)).hexdigest()[:12]
    program = cache_folder() / f"franz_go-{version}"
    if not program.exists():
        fresh = program.with_suffix(f".{os.getpid()}")
        _said(["go", "build", "-o", str(fresh), "."], "franz-go: it could not be built", cwd=_GO)
        fresh.rename(program)  # another process may be building it too
    return program


def _franz_go_versions() -> dict[str, str]:
    found = re.search(r"twmb/franz-go (v\S+)", (_GO / "go.mod").read_text())
    return {
        "franz-go": found.group(1) if found else "unknown",
        "go": _said(["go", "env", "GOVERSION"], "go has no version").strip(),
    }


# --- Java ---------------------------------------------------------------------------------------------------------------

_POM = _HERE / "java" / "pom.xml"
_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"
_JAVA = {
    "max.poll.records": 10_000,
    "fetch.max.bytes": _FETCH_MAX_BYTES,
    "enable.auto.commit": "false",
}  # fmt: skip


@functools.cache
def _jars() -> Path:
    """The folder with Kafka's jars: those of KAFKA_HOME, or else fetched with Maven."""
    if shutil.which("java") is None:
        raise ToolError("java: there is no java on PATH")
    if home := os.environ.get("KAFKA_HOME"):
        libs = Path(home) / "libs"
        if not list(libs.glob("kafka-tools-[0-9]*.jar")):
            raise ToolError(f"java: {libs} has no kafka-tools-*.jar; KAFKA_HOME has to be a Kafka of 3.5 or later")
        return libs
    version = hashlib.sha256(_POM.read_bytes()).hexdigest()[:12]
    folder = cache_folder() / f"java-{version}"
    if not folder.is_dir():
        if shutil.which("mvn") is None:
            raise ToolError("java: KAFKA_HOME is not set, and there is no mvn on PATH to fetch Kafka's jars")
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            jars = Path(temporary) / "jars"  # renamed when whole: a half-fetched folder would be taken for a cache
            _said(
                ["mvn", "-q", "-B", "-f", str(_POM), "dependency:copy-dependencies", f"-DoutputDirectory={jars}"],
                "java: Maven could not fetch Kafka's jars",
            )
            if not folder.is_dir():
                jars.rename(folder)
    return folder


def _java_command(job: Job) -> list[str]:
    return python("fastfetch.benchmark.external", json.dumps(asdict(job)))


def _java_versions() -> dict[str, str]:
    [tools] = _jars().glob("kafka-tools-[0-9]*.jar")
    found = re.search(r"\d[\d.+_]*", _said(["java", "--version"], "java has no version"))
    return {"kafka (java)": tools.stem.removeprefix("kafka-tools-"), "java": found.group() if found else "unknown"}


def _run_java(job: Job) -> Turn:
    """One turn. The time is from the assignment of the partitions to the last record; processor time is of the whole process, its
    start included, and the tool checks no CRCs."""
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as config:
        config.write("".join(f"{name}={value}\n" for name, value in _JAVA.items()))
        config.flush()
        heap = os.environ.get("KAFKA_HEAP_OPTS", "-Xmx512M").split()  # as Kafka's own script does
        command = [
            "java", *heap, "-cp", f"{_jars()}/*", _PERFORMANCE, "--bootstrap-server", job.bootstrap, "--topic", job.topic,
            "--group", f"fastfetch-bench-{uuid.uuid4().hex}", "--messages", str(job.records), "--consumer.config", config.name,
            "--fetch-size", str(FETCH_BYTES), "--timeout", str(int(job.quiet_seconds * 1000)), "--hide-header",
        ]  # fmt: skip
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    rows = [row for row in csv.reader(done.stdout.splitlines(), skipinitialspace=True) if len(row) == 10]
    if done.returncode or not rows:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip() and "WARN" not in line]
        raise ToolError((said or [f"java ended with {done.returncode}"])[0])
    # start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, …
    records, milliseconds = int(rows[-1][4]), float(rows[-1][7])
    if records < job.records:
        raise ToolError(f"it read {records} of {job.records} records")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    peak = used.ru_maxrss << (0 if sys.platform == "darwin" else 10)
    return Turn(max(milliseconds, 1) / 1000, used.ru_utime + used.ru_stime, records, peak)


EXTERNAL: dict[str, External] = {
    "java": External(
        _jars, _java_command, _java_versions,
        {**_JAVA, "max.partition.fetch.bytes": FETCH_BYTES, "check.crcs": "false"}, "ConsumerPerformance", follows=False,
    ),
    "franz-go": External(
        _franz_go, lambda job: [str(_franz_go()), json.dumps(asdict(job))], _franz_go_versions,
        {"FetchMaxBytes": _FETCH_MAX_BYTES, "FetchMaxPartitionBytes": FETCH_BYTES, "GOGC": 400}, "PollFetches()", follows=True,
    ),
}  # fmt: skip


def main() -> None:
    try:
        turn = _run_java(Job(**json.loads(sys.argv[1])))
    except ToolError as error:
        sys.exit(str(error))
    print(json.dumps(asdict(turn)))


if __name__ == "__main__":
    main()
