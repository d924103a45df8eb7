"""Planning: from what is asked for to ranges with fixed ends."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from fastfetch.consumer import Consumer
from fastfetch.engine.arguments import as_integer
from fastfetch.engine.subscription import EARLIEST, LATEST
from fastfetch.errors import CorruptBatchError, UsageError
from fastfetch.types import TopicPartition

from .bounds import Bounds, Given, check_bounds
from .questions import Questions
from .questions import settings as fixed_settings
from .reading import Move, Reader
from .sizes import SAMPLES, Sizes
from .values import Isolation, OffsetRange

__all__ = ["plan"]

SAMPLE_BYTES = 64 << 10


def plan(
    bootstrap_servers: str | Iterable[str],
    topic: str | Iterable[str],
    *,
    start: Given = None,
    end: Given = None,
    partitions: Iterable[int] | int | None = None,
    isolation: Isolation = "read_uncommitted",
    max_records: int | None = None,
    target_bytes: int | None = None,
    timeout_ms: int | None = None,
    **settings: Any,
) -> list[OffsetRange]:
    """Decide what to read: ranges that together are exactly the offsets from `start` up to `end`, which is not included.

    topic           a name, or several
    start, end      an int is an offset, in each partition; a `datetime` with its time zone, or an ISO 8601 string of one, or a
                    `Timestamp(ms)`, is a time: the first offset whose record is not older; a `timedelta` is that long ago;
                    "earliest" and "latest" are the log's ends, and what None means. A mapping by partition number, or by
                    TopicPartition, has one of these for each; a partition that it leaves out gets what None means
    partitions      only these numbers
    isolation       under "read_committed" the latest end is the last stable offset, else the high watermark
    max_records     no range has more offsets than this
    target_bytes    ranges of about so many bytes, in memory, as `RecordBlock.nbytes` counts. Brokers don't tell how large records
                    are: a few small fetches measure it, in up to 8 places of a partition, so that a range may be larger or
                    smaller than asked for. What it covers is exact
    timeout_ms      for the whole plan; default: the setting default_api_timeout_ms
    settings        how to connect, as for Consumer

    Ends are fixed here, and none is beyond what a partition holds now. Each partition gets at least one range, if an empty one:
    `{r.tp: r.end for r in ranges}` is where the next plan starts. They come by topic, partition and offset.

    Raises UsageError for what cannot be meant; OffsetOutOfRangeError if records from an offset given as `start` are gone already
    (start="earliest" takes what is left), or if a partition never got to the one that a mapping gives for it; UnknownTopicError,
    TimeoutError, ConnectionFailedError.
    """
    names = [topic] if isinstance(topic, str) else list(dict.fromkeys(topic))
    now = datetime.now(UTC)
    first, last = Bounds("start", start, EARLIEST, now), Bounds("end", end, LATEST, now)
    if target_bytes is not None and not as_integer(target_bytes, 2**63):
        raise UsageError(f"target_bytes must be a whole number from 1; got {target_bytes!r}")
    config = fixed_settings("plan", bootstrap_servers, isolation, {"max_partition_fetch_bytes": SAMPLE_BYTES} | settings)
    with Consumer(config) as consumer:
        questions = Questions(consumer, timeout_ms)
        ids: dict[str, str | None] = {}
        tps: list[TopicPartition] = []
        for name in sorted(names):
            ids[name], known = questions.topic(name)
            tps += [TopicPartition(name, p) for p in sorted(_chosen(name, known, partitions))]
        check_bounds(first, last, tps)
        # The end first: what retention takes away meanwhile makes a range shorter, never one that ends before it begins.
        ends = questions.ends(tps, LATEST)
        begins = questions.ends(tps, EARLIEST)
        since, until = questions.offsets(first.times(tps)), questions.offsets(last.times(tps))
        servers = ",".join(f"[{host}]:{p}" if ":" in host else f"{host}:{p}" for host, p in consumer.config.bootstrap_servers)
        ranges = []
        for tp in tps:
            begin, end = begins[tp].offset, ends[tp].offset
            stop = last.resolve(tp, begin, end, until.get(tp))
            begin = min(first.resolve(tp, begin, end, since.get(tp)), stop)
            ranges.append(OffsetRange(servers, *tp, begin, stop, isolation, ids[tp.topic], ends[tp].leader_epoch))
        if target_bytes is not None:
            reader = Reader(consumer, [each.tp for each in ranges if each], config)
            ranges = _cut_by_bytes(reader, ranges, target_bytes, questions)
    return ranges if max_records is None else [part for each in ranges for part in each.split(max_records)]


def _chosen(topic: str, known: set[int], partitions: Iterable[int] | int | None) -> set[int]:
    if partitions is None:
        return known
    wanted = set(partitions) if isinstance(partitions, Iterable) else {partitions}
    if unknown := wanted - known:
        raise UsageError(f"plan: topic {topic!r} has {len(known)} partitions, numbered from 0, and no {unknown.pop()!r}")
    return {p for p in known if p in wanted}


def _cut_by_bytes(reader: Reader, ranges: list[OffsetRange], target: int, questions: Questions) -> list[OffsetRange]:
    """Cut where about `target` bytes have passed, as measured in up to SAMPLES places of each range."""
    sizes = {each.tp: Sizes(each) for each in ranges if each}
    for turn in range(SAMPLES):
        waiting = set()
        for tp, size in sizes.items():
            at = size.whole.start + len(size.whole) * turn // SAMPLES
            if at >= size.reached:
                size.begin(at)
                waiting.add(tp)
        reader.go(*(Move(tp, sizes[tp].start, sizes[tp].start + 1) for tp in waiting))
        while waiting:
            try:
                blocks = reader.poll(questions.left_ms)
            except CorruptBatchError as error:  # whoever reads will meet it
                waiting.remove(TopicPartition(error.topic, error.partition))
                continue
            for block in blocks:
                sizes[TopicPartition(block.topic, block.partition)].add(block)
            for tp in [tp for tp in waiting if reader.position(tp) > sizes[tp].start]:
                sizes[tp].end(reader.position(tp))
                waiting.remove(tp)
    return [part for each in ranges for part in (sizes[each.tp].cut(target) if each else [each])]
