"""Every figure that fastfetch promises, measured and compared with its bound: `make bench`, or

    python -m bench.figures [--only decode --only bombs ...] [--report-only] [--quick] [--markdown FILE]

One table on stdout, the same with all samples in out/figures.json. Exit status 1 if a bound does not hold, unless --report-only.
The groups of LIVE share one real broker, which is filled for them once.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import click

import fastfetch
from bench import bombs, e2e, groups, idle, kills, memory
from bench.corpus import OUT, Corpus, corpus, wire_corpus
from bench.measure import Figure, Samples, alternate, difference_figure, plain_table, ratio_figure, skipped, table
from bench.topics import Stock, stocked
from fastfetch.benchmark.decoders import peer_decoder
from fastfetch.benchmark.floor import Floor, crc_name, floor_codecs
from fastfetch.testing.batches import encode_batch
from tests.live.kafka_cluster import missing_tools
from tests.peers.suites import SUITES, UnavailableError, compare

# name of the set: (against the floor at most, against aiokafka at least); None: shown without a bound.
DECODE_BOUNDS: dict[str, tuple[float | None, float | None]] = {
    "json-none": (1.2, 6.0),
    "json-lz4": (1.2, 2.5),
    "json-zstd": (1.2, 1.8),
    "100b-lz4": (1.2, 2.5),
    "1kb-none": (1.2, 6.0),
    "json-none-5": (1.5, 6.0),
    "json-lz4-5": (1.5, 2.5),
    "json-gzip": (None, None),
    "json-snappy": (None, None),
}
OBJECT_SETS = ("json-none", "json-lz4", "json-zstd", "100b-lz4")
OBJECT_BOUNDS = {"values()": 40.0, "records()": 80.0}  # ns per record above the floor
# Objects of one response are made and dropped again. Beyond a megabyte or so CPython's allocator gives whole arenas back to the
# system at the drop and asks for fresh pages the next time. That costs more than the objects do, and a program that keeps what
# it reads, or polls 500 records at a time, never sees it. For a large response it is shown too, without a bound.
OBJECT_RESPONSE_BYTES = 1 << 20
THREAD_BOUNDS = {"json-zstd": 1.7, "json-lz4": 1.5}
THREAD_RESPONSE_BYTES = 16 << 20

Scale = Callable[[int], int]


def suite_figures() -> list[Figure]:
    """What passes of other clients' own tests with the adapter in place, of what passes without."""
    out = []
    for name, suite in SUITES.items():
        try:
            found = compare(suite)
        except UnavailableError as error:
            out.append(skipped("suites", name, str(error)))
            continue
        passed = len(found.passed_alone)
        detail = f"{passed - len(found.lost)} of {passed} tests, {len(found.unexplained)} unexplained"
        out.append(Figure("suites", f"{name}: its own tests with the adapter", (100 * found.share,), "%", ">=", 98, detail))
    return out


def _checked(data: Corpus) -> bytes:
    """The bytes, after one decode whose columns were compared with the floor's: a floor that did less would be no floor."""
    decoded = fastfetch.decode(data.data)
    decoded.raise_for_error()
    if len(decoded) != data.records:
        raise RuntimeError(f"{data.name}: {len(decoded)} of {data.records} records")
    if data.codec in floor_codecs():
        Floor(data).compare(decoded.blocks)
    return data.data


def decode_figures(scale: Scale) -> list[Figure]:
    """One thread, bytes to columns: against the floor, against aiokafka, and kafka-python beside them."""
    against_floor: list[Figure] = []
    against_peer: list[Figure] = []
    beside: list[Figure] = []
    for name, (at_most, at_least) in DECODE_BOUNDS.items():
        data = corpus(name)
        raw = _checked(data)
        quick: dict[str, Callable[[], object]] = {"fastfetch": partial(fastfetch.decode, raw)}
        if data.codec in floor_codecs():
            quick["floor"] = Floor(data)
            samples = alternate(quick, data.records, rounds=scale(61))
            against_floor.append(ratio_figure("floor", data.title, samples, "fastfetch", "floor", "<=", at_most))
        elif at_most is not None:
            against_floor.append(skipped("floor", data.title, f"the C library for {data.codec} is not on this machine"))
        quick.pop("floor", None)
        samples = alternate(quick | {"aiokafka": partial(peer_decoder("aiokafka"), raw)}, data.records, rounds=scale(15))
        against_peer.append(ratio_figure("aiokafka", data.title, samples, "aiokafka", "fastfetch", ">=", at_least))
        if name in OBJECT_SETS:
            samples = alternate(
                quick | {"kafka-python": partial(peer_decoder("kafka-python"), raw)},
                data.records,
                rounds=scale(5),
                warmups=1,
            )
            beside.append(ratio_figure("kafka-python", data.title, samples, "kafka-python", "fastfetch", ">=", None))
    return against_floor + against_peer + beside + _costs(scale)


def _costs(scale: Scale) -> list[Figure]:
    """What checking costs, and what a call costs that has next to nothing to do; both without a bound."""
    out = []
    for name in ("json-none", "json-lz4"):
        data = corpus(name)
        contenders: dict[str, Callable[[], object]] = {
            "checked": partial(fastfetch.decode, data.data),
            "unchecked": partial(fastfetch.decode, data.data, check_crcs=False),
        }
        samples = alternate(contenders, data.records, rounds=scale(31))
        out.append(ratio_figure("costs", f"check_crcs on over off: {data.title}", samples, "checked", "unchecked", "<=", None))
    one = encode_batch([b"x" * 100])
    calls = alternate({"call": partial(fastfetch.decode, one)}, 1, rounds=scale(3000), warmups=100)["call"]
    out.append(Figure("costs", "decode() of one batch of one record", tuple(ns / 1000 for ns in calls), "µs"))
    return out


def _values(raw: bytes) -> None:
    for block in fastfetch.decode(raw).blocks:
        block.values()


def _records(raw: bytes) -> None:
    for block in fastfetch.decode(raw).blocks:
        block.records()


def object_figures(scale: Scale) -> list[Figure]:
    """Decode and make Python objects of every record, less the floor."""
    out = []
    for name in OBJECT_SETS:
        data = corpus(name, OBJECT_RESPONSE_BYTES)
        if data.codec not in floor_codecs():
            out.append(skipped("objects", data.title, f"the C library for {data.codec} is not on this machine"))
            continue
        samples = _object_samples(data, scale(101))
        for call, bound in OBJECT_BOUNDS.items():
            title = f"{call} less floor: {data.title}"
            out.append(difference_figure("objects", title, samples, call, "floor", "<=", bound))
    large = corpus("json-none")
    samples = _object_samples(large, scale(21))
    for call in OBJECT_BOUNDS:
        out.append(difference_figure("objects", f"{call} less floor: 4 MiB at once", samples, call, "floor", "<=", None))
    return out


def _object_samples(data: Corpus, rounds: int) -> Samples:
    raw = _checked(data)
    contenders: dict[str, Callable[[], object]] = {
        "floor": Floor(data),
        "values()": partial(_values, raw),
        "records()": partial(_records, raw),
    }
    return alternate(contenders, data.records, rounds=rounds)


def thread_figures(scale: Scale) -> list[Figure]:
    """One response of 16 MiB on the wire, decoded by one thread and by two."""
    out = []
    for name, bound in THREAD_BOUNDS.items():
        data = wire_corpus(name, THREAD_RESPONSE_BYTES)
        title = f"{data.title}, two threads over one"
        if (os.cpu_count() or 1) < 2:
            out.append(skipped("threads", title, "this machine has one core"))
            continue
        raw = data.data
        if len(fastfetch.decode(raw, threads=2)) != data.records:
            raise RuntimeError(f"{data.name}: records are missing with two threads")
        contenders: dict[str, Callable[[], object]] = {
            "one": partial(fastfetch.decode, raw, threads=1),
            "two": partial(fastfetch.decode, raw, threads=2),
        }
        samples: Samples = alternate(contenders, data.records, rounds=scale(21), clock=time.perf_counter_ns)
        figure = ratio_figure("threads", title, samples, "one", "two", ">=", bound)
        out.append(replace(figure, detail=f"{figure.detail}; two floors side by side {_side_by_side():.2f} x"))
    return out


def _side_by_side() -> float:
    """What a second thread is worth on this machine now, by two floors that share nothing: the control of the figure beside it.

    Near 1, other programs (or the host's) have the other core, and the figure says nothing.
    """
    data = corpus("json-lz4" if "lz4" in floor_codecs() else "json-none")
    floors = [Floor(data), Floor(data)]

    def repeat(floor: Floor) -> None:
        for _ in range(20):
            floor()

    speedups = []
    for _ in range(7):
        begun = time.perf_counter()
        for floor in floors:
            repeat(floor)
        one_by_one = time.perf_counter() - begun
        threads = [threading.Thread(target=repeat, args=(floor,)) for floor in floors]
        begun = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        speedups.append(one_by_one / (time.perf_counter() - begun))
    return statistics.median(speedups)


GROUPS: dict[str, Callable[[Scale], list[Figure]]] = {
    "decode": decode_figures,
    "objects": object_figures,
    "threads": thread_figures,
    "bombs": lambda _: bombs.figures(),
    "suites": lambda _: suite_figures(),
    "kills": kills.figures,  # with a broker of its own, whose sessions are short
}
# Those that need a broker: which topics, and what to do with them.
LIVE: dict[str, tuple[tuple[str, ...], Callable[[Stock, Scale], list[Figure]]]] = {
    "e2e": (("none", "lz4", "zstd"), e2e.e2e_figures),
    "peers": (("none", "lz4", "zstd", "lz4-5"), e2e.peer_figures),
    "adapters": (("none", "lz4"), e2e.adapter_figures),
    "partitions": (("none", "none-500"), e2e.partition_figures),
    "groups": ((groups.TOPIC,), groups.figures),
    "memory": (memory.TOPICS_USED, lambda stock, _: memory.figures(stock)),
    "idle": ((idle.TOPIC,), lambda stock, _: idle.figures(stock)),
}
QUICK_SHARE = 4  # of the records of a topic, with --quick


def _live_figures(names: list[str], scale: Scale, share: int) -> list[Figure]:
    if reason := missing_tools():
        return [skipped(name, "everything with a broker", reason) for name in names]
    out = []
    _say("starting a broker and filling its topics")
    with stocked((topic for name in names for topic in LIVE[name][0]), share=share) as stock:
        for name in names:
            _say(f"measuring {name}")
            out += LIVE[name][1](stock, scale)
    return out


def _say(what: str) -> None:
    print(f"{what} …", file=sys.stderr, flush=True)


def _surroundings() -> dict[str, object]:
    return {
        "fastfetch": fastfetch.build_info(),
        "floor_crc": crc_name(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "taken": datetime.now(UTC).isoformat(timespec="seconds"),
    }


@click.command()
@click.option(
    "--only", multiple=True, type=click.Choice([*GROUPS, *LIVE]), help="Measure only this group; may be given several times."
)
@click.option("--report-only", is_flag=True, help="Exit with 0 even if a bound does not hold.")
@click.option("--quick", is_flag=True, help="A third of the rounds, a quarter of a topic: for a look, not for a verdict.")
@click.option("--markdown", type=click.Path(dir_okay=False, writable=True), help="Write the table there as well, for a page.")
def main(only: tuple[str, ...], report_only: bool, quick: bool, markdown: str | None) -> None:
    """Measure fastfetch against its figures and print one table."""
    figures: list[Figure] = []
    begun = time.monotonic()
    scale: Scale = (lambda rounds: max(3, rounds // 3)) if quick else (lambda rounds: rounds)
    for name, take in GROUPS.items():
        if not only or name in only:
            _say(f"measuring {name}")
            figures += take(scale)
    if live := [name for name in LIVE if not only or name in only]:
        figures += _live_figures(live, scale, QUICK_SHARE if quick else 1)
    print(table(figures))
    missed = [figure for figure in figures if figure.met is False]
    bounded = [figure for figure in figures if figure.met is not None]
    print(f"\n{len(bounded) - len(missed)} of {len(bounded)} figures met in {time.monotonic() - begun:.0f} s")
    if markdown is not None:
        Path(markdown).write_text(plain_table(figures) + "\n")
    OUT.mkdir(exist_ok=True)
    report = {"surroundings": _surroundings(), "figures": [figure.as_json() for figure in figures]}
    (OUT / "figures.json").write_text(json.dumps(report, indent=1, default=str))
    if missed and not report_only:
        sys.exit(1)


if __name__ == "__main__":
    main()
