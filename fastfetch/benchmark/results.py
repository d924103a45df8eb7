"""A run of `kfetch bench`: what was read, by whom, how fast; and the JSON file that keeps it.

A case is some data: a topic, or one codec of it; for `decode` also the number of threads. A reading is one client's turn at one
case. Readings of the same case and round were taken one after the other, so a machine that is slow for a while is slow for both
sides of a ratio: a ratio is the median of the ratios within a round, never one of medians.

The file is one object:

    format     1
    kind       "decode" or "consume"
    taken      when, ISO 8601 with the zone
    machine    what it ran on, by name: processor, cores, memory_bytes, system …
    versions   of whatever took part, by name
    settings   options of the command; under "clients" those of each client
    cases, readings, failed    lists of Case, Reading and Failure as below; a null is what is not known or has no meaning there
"""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from fastfetch.errors import FastFetchError

__all__ = ["FASTFETCH", "MEASURES", "Case", "Failure", "Latency", "Measure", "Reading", "ResultsError", "Run", "Spread", "spread"]

FORMAT = 1
KINDS = ("decode", "consume")
FASTFETCH = "fastfetch"  # the client that others are compared with

T = TypeVar("T")


class ResultsError(FastFetchError):
    """A file that is no run, or one that this version can't read."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Middle and quartiles of `count` readings; of fewer than three, the smallest and the largest."""

    median: float
    low: float
    high: float
    count: int


def spread(values: Sequence[float]) -> Spread:
    """ValueError if there are none."""
    if len(values) < 3:
        return Spread(statistics.median(values), min(values), max(values), len(values))
    first, _, third = statistics.quantiles(values, n=4)
    return Spread(statistics.median(values), first, third, len(values))


@dataclass(frozen=True, slots=True)
class Case:
    """Some data, and its shape.

    id             unique in the run
    codec          none, gzip, snappy, lz4, zstd; several with a plus between them if the topic has several
    partitions     how many
    records        that there are, or that are read of it
    batch_records  records a batch, mean
    record_bytes   inflated bytes a record with its framing, mean
    wire_bytes     of those records as they are stored and sent, batch headers included
    inflated_bytes the same after decompression
    threads        of the decoder; None where the client decides
    """

    id: str
    topic: str
    codec: str
    partitions: int
    records: int
    batch_records: float
    record_bytes: float
    wire_bytes: int
    inflated_bytes: int
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds from a record's append to its delivery, by how many of the records were at least as quick."""

    p50: float
    p90: float
    p99: float
    p999: float
    max: float

    @classmethod
    def of(cls, ages_us: Sequence[int]) -> Latency:
        """From the ages of records at their delivery, in microseconds. ValueError if there are none."""
        ages = sorted(ages_us)
        if not ages:
            raise ValueError("no ages of records")
        ranks = (math.ceil(share * len(ages) / 1000) - 1 for share in (500, 900, 990, 999, 1000))
        return cls(*(ages[rank] / 1000 for rank in ranks))


@dataclass(frozen=True, slots=True)
class Reading:
    """A client's turn.

    round           from 1; the warm-up is not kept
    records         that were read
    seconds         on the wall
    cpu_seconds     of all threads of the client's process, user and system; None if it can't be told
    wire_bytes, inflated_bytes    of the records read
    peak_rss_bytes  the most resident memory its process ever had
    latency_ms      only of a turn in which the client followed a topic that was written at a steady rate. Its records a second
                    are the writer's: `Run.readings` and all that is derived from it leave such turns out
    """

    case: str
    client: str
    round: int
    records: int
    seconds: float
    cpu_seconds: float | None
    wire_bytes: int
    inflated_bytes: int
    peak_rss_bytes: int | None = None
    latency_ms: Latency | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """A client that could not read a case, or (case None) could not be tried at all, as it is not installed."""

    case: str | None
    client: str
    why: str


@dataclass(frozen=True, slots=True)
class Measure:
    """What can be told of a reading. `of` returns None where the reading doesn't have it."""

    title: str
    unit: str
    is_more_better: bool
    of: Callable[[Reading], float | None]


def _cpu_ns(reading: Reading) -> float | None:
    return None if reading.cpu_seconds is None else reading.cpu_seconds / reading.records * 1e9


# By name, as the reports use them. Rates are a second; MB are 10^6 bytes.
MEASURES: dict[str, Measure] = {
    "records": Measure("records a second", "records/s", True, lambda r: r.records / r.seconds),
    "wire": Measure("bytes on the wire", "MB/s", True, lambda r: r.wire_bytes / r.seconds / 1e6),
    "inflated": Measure("bytes inflated", "MB/s", True, lambda r: r.inflated_bytes / r.seconds / 1e6),
    "time": Measure("time a record", "ns", False, lambda r: r.seconds / r.records * 1e9),
    "cpu": Measure("processor time a record", "ns", False, _cpu_ns),
    "memory": Measure("peak memory", "MB", False, lambda r: None if r.peak_rss_bytes is None else r.peak_rss_bytes / 1e6),
}


@dataclass
class Run:
    """Everything of one run. Lists are in the order in which things happened."""

    kind: str
    taken: str
    machine: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    cases: list[Case] = field(default_factory=list)
    all_readings: list[Reading] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)

    # --- what came of it ------------------------------------------------------------------------------------------------

    def case(self, case_id: str) -> Case:
        """KeyError if there is none of that id."""
        for case in self.cases:
            if case.id == case_id:
                return case
        raise KeyError(case_id)

    def clients(self, case_id: str | None = None) -> list[str]:
        """Who has readings, of this case or of any, in the order of their first turn."""
        return list(dict.fromkeys(r.client for r in self.all_readings if case_id is None or r.case == case_id))

    def readings(self, case_id: str, client: str) -> list[Reading]:
        """In the order of the rounds; without those that were about latency."""
        return [r for r in self._of(case_id, client) if r.latency_ms is None]

    def latencies(self, case_id: str, client: str) -> list[Latency]:
        """One for each turn that was about it."""
        return [r.latency_ms for r in self._of(case_id, client) if r.latency_ms is not None]

    def spread(self, case_id: str, client: str, measure: str = "records") -> Spread | None:
        """Of one of MEASURES over the rounds; None if no reading has it."""
        values = list(self._values(case_id, client, measure).values())
        return spread(values) if values else None

    def ratios(self, case_id: str, client: str, measure: str = "records", over: str = FASTFETCH) -> Spread | None:
        """The client's number divided by that of `over`, round by round; None if they have no round in common."""
        mine, theirs = self._values(case_id, client, measure), self._values(case_id, over, measure)
        values = [value / theirs[turn] for turn, value in mine.items() if theirs.get(turn)]
        return spread(values) if values else None

    def _of(self, case_id: str, client: str) -> Iterable[Reading]:
        return (r for r in self.all_readings if r.case == case_id and r.client == client)

    def _values(self, case_id: str, client: str, measure: str) -> dict[int, float]:
        found = ((r.round, MEASURES[measure].of(r)) for r in self.readings(case_id, client))
        return {turn: value for turn, value in found if value is not None}

    # --- the file -------------------------------------------------------------------------------------------------------

    def as_json(self) -> dict[str, Any]:
        """The object that the module's text describes."""
        return {
            "format": FORMAT,
            "kind": self.kind,
            "taken": self.taken,
            "machine": self.machine,
            "versions": self.versions,
            "settings": self.settings,
            "cases": [asdict(case) for case in self.cases],
            "readings": [_reading_as_json(reading) for reading in self.all_readings],
            "failed": [asdict(failure) for failure in self.failed],
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file, whole or not at all. Raises OSError."""
        path = Path(os.path.realpath(path))  # a link stays one
        text = json.dumps(self.as_json(), indent=1) + "\n"
        if path.exists() and not path.is_file():  # a device or a pipe: it must not be replaced, /dev/null least of all
            path.write_text(text)
            return
        fresh = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            fresh.write_text(text)
            fresh.replace(path)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Run:
        """Read a file that `save` wrote. Raises OSError, and ResultsError if it is something else."""
        try:
            found = json.loads(Path(path).read_bytes())
        except (ValueError, RecursionError) as error:
            raise ResultsError(f"{path} is no run of kfetch bench: {error}") from None
        return cls.from_json(found, str(path))

    @classmethod
    def from_json(cls, found: Any, name: str = "this") -> Run:
        """The run in such an object. What a newer version may have added to it is passed over. Raises ResultsError."""
        if not isinstance(found, dict) or "format" not in found:
            raise ResultsError(f"{name} is no run of kfetch bench: it has no 'format'")
        if found["format"] != FORMAT:
            raise ResultsError(f"{name} has format {found['format']!r}, and this version of fastfetch reads format {FORMAT}")
        if found.get("kind") not in KINDS:
            raise ResultsError(f"{name} is a run of kind {found.get('kind')!r}: known are {' and '.join(KINDS)}")
        try:
            run = cls(
                found["kind"],
                str(found["taken"]),
                _mapping(found, "machine"),
                {name: str(version) for name, version in _mapping(found, "versions").items()},
                _mapping(found, "settings"),
                [_made(Case, each) for each in found["cases"]],
                [_reading_from_json(each) for each in found["readings"]],
                [_made(Failure, each) for each in found["failed"]],
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ResultsError(f"{name} is no whole run of kfetch bench: {type(error).__name__}: {error}") from None
        known = {case.id for case in run.cases}
        if len(known) < len(run.cases):
            raise ResultsError(f"{name} has several cases of one id")
        if unknown := {r.case for r in run.all_readings} - known:
            raise ResultsError(f"{name} has readings of {min(unknown)!r}, which is none of its cases")
        return run


# In the file percentiles have the names that people say.
_PERCENTILES = {"p50": "p50", "p90": "p90", "p99": "p99", "p999": "p99.9", "max": "max"}


def _reading_as_json(reading: Reading) -> dict[str, Any]:
    out = asdict(reading)
    if reading.latency_ms is not None:
        out["latency_ms"] = {_PERCENTILES[name]: value for name, value in out["latency_ms"].items()}
    return out


def _reading_from_json(found: Mapping[str, Any]) -> Reading:
    latency = found["latency_ms"]
    if latency is not None:
        latency = _made(Latency, {name: latency[said] for name, said in _PERCENTILES.items()})
    reading = _made(Reading, {**found, "latency_ms": latency})
    if reading.records <= 0 or reading.seconds < 1e-9:  # nothing is read in less, and numbers stay finite
        raise ValueError(f"a reading of {reading.records} records in {reading.seconds} s")
    return reading


def _mapping(found: Mapping[str, Any], name: str) -> dict[str, Any]:
    if not isinstance(found[name], dict):
        raise TypeError(f"{name!r} is no object")
    return dict(found[name])


def _made(kind: type[T], found: Mapping[str, Any]) -> T:
    declared = {name: str(each.type) for name, each in kind.__dataclass_fields__.items()}  # type: ignore[attr-defined]
    values = {name: value for name, value in found.items() if name in declared}
    for name, value in values.items():
        if not _fits(value, declared[name]):
            raise TypeError(f"{name} is {str(value)[:40]!r}")
    return kind(**values)


def _fits(value: Any, declared: str) -> bool:
    """May a field that is declared so have that value? Files are also written by hand. No number is negative or unbounded."""
    if value is None:
        return declared.endswith("None")
    if declared.startswith(("int", "float")):
        number = (int, float) if declared.startswith("float") else int
        return isinstance(value, number) and not isinstance(value, bool) and 0 <= value < 1 << 63
    return isinstance(value, str if declared.startswith("str") else Latency)
