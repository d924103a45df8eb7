"""Which charts a set of runs gives, and the numbers under each.

A chart holds everything equal but what it is about: the codec, or one of the dimensions below. Batch and record sizes are means
of real data and never quite the same, so values within a factor of the smallest count as equal; what they are is said under the
chart.

Only runs of one kind, on one machine, with the same versions and settings share a chart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fastfetch.benchmark.plots import Bars, Group, Lines, number
from fastfetch.benchmark.results import FASTFETCH, MEASURES, Case, Latency, Run, Spread, spread

__all__ = [
    "WHAT_WAS_READ",
    "Chart",
    "Sample",
    "Setting",
    "alike",
    "charts",
    "conflicts",
    "differences",
    "headings",
    "settings_of",
    "shape_of",
    "together",
]

FLOOR = "floor"
_HEADER_BYTES = 61  # of a batch of format 2
_GROUPS = 6  # in a chart of bars; those of several codecs are not parted

# Options that say what was read and for how long, not how: runs that differ in nothing else belong on one chart.
WHAT_WAS_READ = ("records", "rounds", "seconds", "warm_up", "latency_rate", "latency_seconds", "sources", "mb")

_PERCENTILES = {"p50": "50 %", "p90": "90 %", "p99": "99 %", "p999": "99.9 %", "max": "all"}


@dataclass(frozen=True, eq=False)
class Sample:
    """A case of a run. `source` is the run's file, if there are several."""

    run: Run
    case: Case
    source: str = ""


@dataclass
class Setting:
    """Runs whose numbers may stand side by side. `samples` are their cases."""

    kind: str
    sources: list[tuple[str, Run]] = field(default_factory=list)

    @property
    def samples(self) -> list[Sample]:
        """By the number of threads, else in the order of the files."""
        several = len(self.sources) > 1
        samples = [Sample(run, case, name if several else "") for name, run in self.sources for case in run.cases]
        return sorted(samples, key=lambda sample: sample.case.threads or 0)


@dataclass(frozen=True)
class Chart:
    """A drawing with what is to be read beside it.

    key       letters, digits and dashes; no other chart of the setting has it
    section   under which heading it stands
    text      what is shown, and how it was measured
    head      names of the table's columns; the first cell of a row is the row's name
    rows      under headings, which may be ""
    """

    key: str
    section: str
    title: str
    text: str
    drawing: Bars | Lines
    head: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Sequence[str]]]]


def together(sources: Iterable[tuple[str, Run]]) -> list[Setting]:
    """Runs by where and how they were taken, in the order of their first."""
    found: list[Setting] = []
    for name, run in sources:
        for setting in found:
            if not any(conflicts(other, run) for _, other in setting.sources):
                setting.sources.append((name, run))
                break
        else:
            found.append(Setting(run.kind, [(name, run)]))
    return found


def settings_of(run: Run) -> dict[str, Any]:
    """Those that say how it was measured."""
    return {name: value for name, value in run.settings.items() if name not in WHAT_WAS_READ}


def conflicts(a: Run, b: Run) -> list[tuple[str, Any, Any]]:
    """(what, in a, in b) of all that makes numbers of two runs less comparable: another machine, or another version or setting of
    something that took part in both. None is what isn't there."""
    settings = settings_of(a), settings_of(b)
    clients = [each.pop("clients", {}) for each in settings]
    found: list[tuple[str, Any, Any]] = [("kind of run", a.kind, b.kind)] if a.kind != b.kind else []
    found += differences(a.machine, b.machine, "machine: ")
    found += differences(*_of_both(a.versions, b.versions), "version: ")
    found += differences(*settings, "setting: ")
    found += differences(*_of_both(*clients), "setting: ")
    return found


def _of_both(a: Any, b: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What of these has a name that both have. Nothing, if one of them is no mapping."""
    names = [name for name in a if name in b] if isinstance(a, dict) and isinstance(b, dict) else []
    return {name: a[name] for name in names}, {name: b[name] for name in names}


def differences(a: Mapping[str, Any], b: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(name, value in a, value in b) of what is not the same; names of what lies deeper have dots. None is what isn't there."""
    for name in dict.fromkeys([*a, *b]):
        mine, theirs = a.get(name), b.get(name)
        if isinstance(mine or {}, dict) and isinstance(theirs or {}, dict) and (mine or theirs):
            yield from differences(mine or {}, theirs or {}, f"{path}{name}.")
        elif mine != theirs:
            yield f"{path}{name}", mine, theirs


# --- what is held equal -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dimension:
    """Something that data differ in. Up to `tolerance` times the smallest value all are one; without it, values are exact."""

    of: Callable[[Case], float | None]
    name: str  # "partitions" for more than one
    one: str
    short: str = ""
    growth: str = ""  # the heading of charts
    tolerance: float = 1.0

    def values(self, cases: Iterable[Case]) -> list[float]:
        """Of those cases that tell."""
        return [value for value in map(self.of, cases) if value is not None]

    def is_one(self, a: float | None, b: float | None) -> bool:
        return a == b if a is None or b is None else max(a, b) <= min(a, b) * self.tolerance

    def says(self, cases: Iterable[Case]) -> str:
        """What these have, as "8 partitions" or "about 210 bytes a record"; "" if they don't tell."""
        if not (values := self.values(cases)):
            return ""
        least, most = min(values), max(values)
        if self.tolerance == 1.0:
            text = f"{least:,}" if least == most else f"{least:,} to {most:,}"
            return self.one if text == "1" else f"{text} {self.name}"
        if most >= 1.06 * least:
            return f"{_rough(least)} to {_rough(most)} {self.name}"
        return f"about {self.one}" if _rough(least) == "1" else f"about {_rough(least)} {self.name}"

    def tells(self, case: Case) -> str:
        """The same of one, for a chart's small room: "~210 B"."""
        value = self.of(case)
        if value is None:
            return ""
        return f"~{_rough(value)} {self.short}" if self.short else self.one if value == 1 else f"{value:,} {self.name}"


def _rough(value: float) -> str:
    return f"{float(f'{value:.2g}'):,g}"


def _record_size(case: Case) -> float | None:
    """Without its share of the batch's header, or the same records would be larger in small batches."""
    size = case.record_bytes - _HEADER_BYTES / case.batch_records if case.batch_records else 0
    return size if size > 0 else None


_PARTITIONS = Dimension(lambda case: case.partitions, "partitions", "1 partition", growth="Growth with partitions")
_THREADS = Dimension(lambda case: case.threads, "threads", "1 thread", growth="Growth with threads")
_BATCH = Dimension(
    lambda case: case.batch_records, "records a batch", "1 record a batch", "a batch", "Growth with batch size", tolerance=1.5
)
_RECORD = Dimension(_record_size, "bytes a record", "1 byte a record", "B", "Growth with record size", tolerance=1.25)
# A producer that fills its batches by bytes puts fewer of the larger records into one: for it, this is what stays equal.
_BATCH_BYTES = Dimension(lambda case: case.batch_records * case.record_bytes, "bytes a batch", "1 byte a batch", tolerance=1.5)
_SHAPE = (_PARTITIONS, _BATCH, _RECORD, _THREADS)


def _levels(samples: Sequence[Sample], dimension: Dimension) -> dict[float | None, float | None]:
    """Of each value the smallest of those that count as equal to it."""
    levels: dict[float | None, float | None] = {None: None}
    begun = 0.0
    for value in sorted({value for value in (dimension.of(sample.case) for sample in samples) if value is not None}):
        if not begun or not dimension.is_one(begun, value):
            begun = value
        levels[value] = begun
    return levels


def _together(samples: Sequence[Sample], dimensions: Sequence[Dimension], by_codec: bool) -> Iterable[list[Sample]]:
    """Those together that have these dimensions in common, and the codec if it counts."""
    levels = [_levels(samples, dimension) for dimension in dimensions]
    found: dict[Any, list[Sample]] = {}
    for sample in samples:
        place = tuple(level[dimension.of(sample.case)] for level, dimension in zip(levels, dimensions, strict=True))
        found.setdefault((sample.case.codec if by_codec else "", *place), []).append(sample)
    return found.values()


def alike(a: Case, b: Case) -> bool:
    """Do they count as the same data, by codec and shape?"""
    return a.codec == b.codec and all(dimension.is_one(dimension.of(a), dimension.of(b)) for dimension in _SHAPE)


def shape_of(samples: Sequence[Sample]) -> str:
    """In words: "8 partitions, about 80 records a batch, about 210 bytes a record"."""
    cases = [sample.case for sample in samples]
    return ", ".join(said for dimension in _SHAPE if (said := dimension.says(cases)))


# --- the charts ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A chart of bars: a measure of results.py, in `unit` of it. `over` are those whose numbers the others are divided by, and
    `beside` are further measures for the table."""

    measure: str
    section: str
    axis: str
    shown: str
    unit: float = 1.0
    over: Sequence[str] = (FASTFETCH,)
    beside: Mapping[str, str] = field(default_factory=dict)


_RATE = Kind(
    "records",
    "Records a second",
    "million records a second",
    "How many records a second each client read. Longer is better.",
    1e6,
    beside={"wire": "wire, MB/s", "inflated": "inflated, MB/s"},
)
_TIME = Kind(
    "time",
    "Time a record",
    "nanoseconds a record",
    "How long each decoder took for a record, on the wall. Shorter is better. The dotted line is the floor: a plain C program "
    "that does what no decoder can leave out, in one thread.",
    over=(FLOOR, FASTFETCH),
)
_CPU = Kind(
    "cpu",
    "Processor time a record",
    "nanoseconds a record",
    "Processor time a record of the client's whole process, all threads, user and system. Shorter is better.",
)
_MEMORY = Kind(
    "memory",
    "Peak memory",
    "MB",
    "The most resident memory that the client's process ever had, interpreter and libraries included. Shorter is better.",
)


def charts(setting: Setting) -> list[Chart]:
    """All that the runs have numbers for."""
    samples = setting.samples
    found = list(_bar_charts(samples, _TIME if setting.kind == "decode" else _RATE))
    found += _growth_charts(samples)
    found += [chart for kind in (_CPU, _MEMORY) for chart in _bar_charts(samples, kind)]
    found += _latency_charts(samples)
    return list(_with_keys(found))


def _with_keys(found: Sequence[Chart]) -> Iterator[Chart]:
    """Distinct ones, which a run of the same shape gives again: its charts may be files that a page points to."""
    seen: dict[str, int] = {}
    for chart in found:
        key = chart.section.lower().replace(" ", "-")
        seen[key] = seen.get(key, 0) + 1
        yield replace(chart, key=key if seen[key] == 1 else f"{key}-{seen[key]}")


def _bar_charts(samples: Sequence[Sample], kind: Kind) -> Iterator[Chart]:
    """One for each shape of data that there is in several codecs, and others for all that is left."""
    there = [sample for sample in samples if _spreads(sample, kind.measure)]
    left = []
    for found in _together(there, _SHAPE, by_codec=False):
        if len({sample.case.codec for sample in found}) > 1:
            yield _bar_chart(found, kind, f"By codec: {shape_of(found)}")
        else:
            left += found
    for begun in range(0, len(left), _GROUPS):
        part = left[begun : begun + _GROUPS]
        title = f"{_codec(part[0].case)}, {shape_of(part)}" if len(part) == 1 else "By data"
        yield _bar_chart(part, kind, title + (f", {begun // _GROUPS + 1}" if len(left) > _GROUPS else ""))


def _bar_chart(samples: Sequence[Sample], kind: Kind, title: str) -> Chart:
    groups, rows, counts = [], [], set()
    for sample, heading in zip(samples, headings(samples), strict=True):
        run, case = sample.run, sample.case.id
        found = _spreads(sample, kind.measure)
        floor = found.get(FLOOR) if FLOOR in kind.over else None
        bars = [(client, _scaled(each, 1 / kind.unit)) for client, each in found.items()]
        groups.append(Group(heading, bars, floor.median / kind.unit if floor else None))
        cells = []
        for client, each in found.items():
            ratios = [_ratio(run.ratios(case, client, kind.measure, over)) for over in kind.over]
            beside = [median(run.spread(case, client, measure)) for measure in kind.beside]
            cells.append([client, *_cells(each), *ratios, *beside, str(each.count)])
            counts.add(each.count)
        rows.append((heading, cells))
    unit = MEASURES[kind.measure].unit
    head = [
        "client",
        f"median, {unit}",
        "quartiles",
        *(f"× {over}" for over in kind.over),
        *kind.beside.values(),
        "rounds",
    ]
    text = f"{kind.shown} Data: {_topics(samples)}. {_medians('Bars', counts)}"
    return Chart("", kind.section, title, text, Bars(kind.axis, groups), head, rows)


def _growth_charts(samples: Sequence[Sample]) -> Iterator[Chart]:
    for dimension in _SHAPE:
        there = [sample for sample in samples if dimension.of(sample.case)]
        seen = []
        others = [other for other in _SHAPE if other is not dimension]
        by_bytes = [_BATCH_BYTES if other is _BATCH else other for other in others]
        for held in (others, by_bytes) if dimension is _RECORD else (others,):
            for found in _together(there, held, by_codec=True):
                if (clients := _growing(found, dimension)) and found not in seen:
                    seen.append(found)
                    yield _growth_chart(found, dimension, held, clients)


def _growing(samples: Sequence[Sample], dimension: Dimension) -> set[str]:
    """The clients with at least two points, for a line needs two."""
    levels = _levels(samples, dimension)
    read: dict[str, set[float | None]] = {}
    for sample in samples:
        for client in _spreads(sample, "records"):
            read.setdefault(client, set()).add(levels[dimension.of(sample.case)])
    return {client for client, found in read.items() if len(found) > 1}


def _growth_chart(samples: Sequence[Sample], dimension: Dimension, held: Sequence[Dimension], clients: Collection[str]) -> Chart:
    cases = [sample.case for sample in samples]
    same = ", ".join([_codec(cases[0]), *filter(None, (other.says(cases) for other in held))])
    lines: dict[str, list[tuple[float, Spread]]] = {}
    rows, counts = [], set()
    for at, sample in sorted(((dimension.of(sample.case) or 0.0, sample) for sample in samples), key=lambda pair: pair[0]):
        run, case, cells = sample.run, sample.case.id, []
        for client, each in _spreads(sample, "records").items():
            if client not in clients:
                continue
            lines.setdefault(client, []).append((at, _scaled(each, 1e-6)))
            ratio, inflated = run.ratios(case, client), run.spread(case, client, "inflated")
            cells.append([client, *_cells(each), _ratio(ratio), median(inflated), str(each.count)])
            counts.add(each.count)
        rows.append((f"{dimension.says([sample.case])}: {_source(sample)}", cells))
    text = (
        f"Records a second by {dimension.name}, of data that are otherwise the same. Higher is better. The axis at the bottom is "
        f"logarithmic. {_medians('Points', counts)}"
    )
    head = ["client", "median, records/s", "quartiles", f"× {FASTFETCH}", "inflated, MB/s", "rounds"]
    drawing = Lines(dimension.name, "million records a second", [(client, lines[client]) for client in _in_order(lines)])
    return Chart("", dimension.growth, same, text, drawing, head, rows)


def _latency_charts(samples: Sequence[Sample]) -> Iterator[Chart]:
    there = [s for s in samples if any(s.run.latencies(s.case.id, client) for client in s.run.clients(s.case.id))]
    for sample, heading in zip(there, headings(there), strict=True):
        clients = _in_order(sample.run.clients(sample.case.id))
        turns = {client: found for client in clients if (found := _latencies(sample, client))}
        ours = turns.get(FASTFETCH, {})
        lines: dict[str, list[tuple[float, Spread]]] = {client: [] for client in turns}
        rows = []
        for at, (name, words) in enumerate(_PERCENTILES.items()):
            cells = []
            for client, found in turns.items():
                each = spread([getattr(latency, name) for latency in found.values()])
                over = {turn: value for turn, latency in ours.items() if (value := getattr(latency, name))}
                ratios = [getattr(found[turn], name) / over[turn] for turn in found if turn in over]
                lines[client].append((at, each))
                cells.append([client, *_cells(each), _ratio(spread(ratios) if ratios else None), str(each.count)])
            rows.append((f"{words} of the records", cells))
        rate = sample.run.settings.get("latency_rate")
        pace = f"{rate:,g} records a second" if isinstance(rate, (int, float)) else "a steady rate"
        text = (
            f"How long it took from a record's append to its delivery, while a topic was written at {pace}: so many of the "
            f"records were at least as quick. Lower is better. Data as in {_topics([sample])}. "
            f"{_medians('Points', {len(found) for found in turns.values()}, 'the quartiles are in the table')}"
        )
        head = ["client", "median, ms", "quartiles", f"× {FASTFETCH}", "rounds"]
        drawing = Lines("of the records", "milliseconds", list(lines.items()), list(_PERCENTILES.values()))
        yield Chart("", "Latency", heading, text, drawing, head, rows)


def _latencies(sample: Sample, client: str) -> dict[int, Latency]:
    """By round."""
    readings = (r for r in sample.run.all_readings if (r.case, r.client) == (sample.case.id, client))
    return {r.round: r.latency_ms for r in readings if r.latency_ms is not None}


def _spreads(sample: Sample, measure: str) -> dict[str, Spread]:
    """Of each client that has the measure."""
    found = (
        (client, sample.run.spread(sample.case.id, client, measure)) for client in _in_order(sample.run.clients(sample.case.id))
    )
    return {client: each for client, each in found if each is not None}


# --- words --------------------------------------------------------------------------------------------------------------


def headings(samples: Sequence[Sample]) -> list[str]:
    """For each sample its codec and whatever else tells it from the others; if nothing of that does, its id and file."""
    telling = [dimension for dimension in _SHAPE if len(set(_levels(samples, dimension).values())) > 2]
    said = [", ".join([_codec(s.case), *filter(None, (dimension.tells(s.case) for dimension in telling))]) for s in samples]
    return [said_of if said.count(said_of) == 1 else f"{said_of}: {_source(s)}" for said_of, s in zip(said, samples, strict=True)]


def _source(sample: Sample) -> str:
    return f"{sample.case.id} ({sample.source})" if sample.source else sample.case.id


def _topics(samples: Sequence[Sample]) -> str:
    topics = list(dict.fromkeys(sample.case.topic for sample in samples))
    return ", ".join(topics[:4]) + (f" and {len(topics) - 4} more" if len(topics) > 4 else "")


def _codec(case: Case) -> str:
    return "uncompressed" if case.codec == "none" else case.codec


def _medians(marks: str, counts: set[int], quartiles: str = "the thin lines span the quartiles") -> str:
    least, most = min(counts), max(counts)
    if most == 1:
        return f"{marks} are of one round."
    rounds = f"{most} rounds" if least == most else f"{least} to {most} rounds"
    few = "" if least > 2 else ", of two rounds both"
    return f"{marks} are medians of {rounds}, {quartiles}{few}."


def _in_order(clients: Iterable[str]) -> list[str]:
    """Ours first, then as they came; what is no client, but a bound, at the end."""
    return sorted(clients, key=lambda client: 0 if client == FASTFETCH else 2 if client == FLOOR else 1)


def _scaled(found: Spread, by: float) -> Spread:
    return Spread(found.median * by, found.low * by, found.high * by, found.count)


def _cells(found: Spread) -> list[str]:
    return [number(found.median), f"{number(found.low)} – {number(found.high)}"]


def median(found: Spread | None, by: float = 1.0) -> str:
    """As text; a dash if there is none."""
    return "–" if found is None else number(found.median * by)


def _ratio(found: Spread | None) -> str:
    return "–" if found is None else f"{number(found.median)} ({number(found.low)} – {number(found.high)})"
