"""`kfetch demo`: the whole way on one machine. A broker of ours on a loopback port serves orders in every codec over real TCP; a
consumer fetches, checks and decodes them, commits the next offsets, and reads the commits back. Then two members of a group share
a topic, and one of them is killed (see `demo_group`). Nothing is written to disk.

It is a check too: what arrived is compared with what was made, and the exit code is 1 if anything differs.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import fastfetch
from fastfetch.cli import EXIT_FAILED
from fastfetch.cli.demo_group import share_and_kill
from fastfetch.consumer import Consumer
from fastfetch.errors import TimeoutError as TimedOut
from fastfetch.testing import Broker, DemoPartition, demo_corpus
from fastfetch.testing.corpus import DEMO_CODECS
from fastfetch.types import TopicPartition

__all__ = ["command"]

_TOPIC = "orders"
_POLL_MS = 100
_STALLED_S = 30.0
_SHARED = 10  # one record in so many is there for the two members, who get them in three seconds


@dataclass
class _Read:
    """What was read of one partition."""

    made: DemoPartition
    records: int = 0
    seconds: float = 0.0  # from the start until its last record
    end: int = 0
    committed: int | None = None
    in_order: bool = True
    last_offset: int = -1

    @property
    def nbytes(self) -> float:
        """Inflated bytes so far."""
        return self.made.inflated * self.records / self.made.records

    @property
    def is_right(self) -> bool:
        return self.in_order and self.records == self.made.records and self.committed == self.end == self.made.records


@click.command(
    "demo", short_help="Fetch, decode and commit a few million records from a broker in this process; kill a member of a group."
)
@click.option("--records", type=click.IntRange(min=1), default=4_000_000, show_default=True, help="About that many.")
@click.option("--partitions", type=click.IntRange(1, 100), default=len(DEMO_CODECS), show_default=True, help="Codecs take turns.")
@click.option("--group/--no-group", default=True, show_default=True, help="Also two members that share a topic; one is killed.")
@click.option("-q", "--quiet", is_flag=True, help="Only the tables.")
def command(records: int, partitions: int, group: bool, quiet: bool) -> int:
    """Watch records being fetched over TCP, checked, inflated, decoded into columns and committed.

    A broker in this process serves them on a free loopback port. Then two members of a group, processes of their own, share a
    topic; one is killed with SIGKILL, and the other takes its partitions over. The exit code is 1 if what arrives differs from
    what was made, or if a record is lost.
    """
    progress_console = Console(stderr=True, quiet=quiet)
    codecs = tuple(itertools.islice(itertools.cycle(DEMO_CODECS), partitions))
    with Broker() as broker:
        is_right = _read_codecs(broker, records, codecs, progress_console)
        if group:
            is_right &= share_and_kill(broker, records // _SHARED, progress_console)
    return 0 if is_right else EXIT_FAILED


def _read_codecs(broker: Broker, records: int, codecs: tuple[str, ...], progress_console: Console) -> bool:
    """Read a topic with a partition a codec, and show the table. Returns whether all is as it was made."""
    began = time.perf_counter()
    made = demo_corpus(broker, _TOPIC, records=records, codecs=codecs, distinct=_distinct(records, len(codecs)))
    total = sum(m.records for m in made)
    took = time.perf_counter() - began
    progress_console.print(f"{total:,} records made in {took:.1f} s, served on {broker.bootstrap_servers}", highlight=False)
    began = time.perf_counter()
    settings = {"group.id": "kfetch-demo", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    with Consumer({"bootstrap.servers": broker.bootstrap_servers, **settings}) as consumer:
        reads = {TopicPartition(_TOPIC, m.partition): _Read(m) for m in made}
        with _bars(progress_console, reads) as show:
            _read_all(consumer, reads, show)
        seconds = time.perf_counter() - began
        consumer.commit()
        checked = consumer.metrics()["crc_checked_bytes"]
    # Another consumer reads the commits back: what the first one remembers would prove nothing.
    with Consumer({"bootstrap.servers": broker.bootstrap_servers, **settings}) as second:
        for tp, committed in second.committed(list(reads)).items():
            reads[tp].committed = None if committed is None else committed.offset
    wire = sum(m.size for m in made)
    right = all(read.is_right for read in reads.values()) and checked == wire
    _report(reads, seconds, wire, checked, right)
    return right


def _distinct(records: int, partitions: int) -> int:
    """Records that are encoded for each partition; the rest repeats them. No more than there are to be."""
    return max(1, min(4_000, records // partitions))


def _read_all(consumer: Consumer, reads: dict[TopicPartition, _Read], show: Any) -> None:
    consumer.assign(reads)
    for tp, end in consumer.end_offsets(list(reads)).items():
        reads[tp].end = end
    began = moved = time.perf_counter()
    open_ = set(reads)
    while open_:
        blocks = consumer.poll_blocks(timeout_ms=_POLL_MS)
        now = time.perf_counter()
        for block in blocks:
            tp = TopicPartition(block.topic, block.partition)
            read = reads[tp]
            read.records += len(block)
            read.seconds = now - began
            offsets = block.offsets
            # The demo's offsets have no holes: first and last say whether one is missing.
            read.in_order &= int(offsets[0]) == read.last_offset + 1 and int(offsets[-1]) == read.last_offset + len(block)
            read.last_offset = int(offsets[-1])
        open_ = {tp for tp in open_ if consumer.position(tp) < reads[tp].end}
        if blocks:
            moved = now
        elif now - moved > _STALLED_S:
            raise TimedOut(f"nothing arrived for {_STALLED_S:.0f} s, and {len(open_)} partitions are not at their end")
        show(now - began)


@contextmanager
def _bars(console: Console, reads: dict[TopicPartition, _Read]) -> Iterator[Any]:
    """A bar a partition and one for all, with rates; nothing if there is no terminal to draw them on."""
    if not console.is_terminal or console.quiet:
        yield lambda elapsed: None
        return
    columns = (TextColumn("{task.description:<20}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[rate]}"))
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True, auto_refresh=False) as bars:
        tasks = {tp: bars.add_task(f"{tp} {read.made.codec}", total=read.made.records, rate="") for tp, read in reads.items()}
        everything = bars.add_task("all", total=sum(read.made.records for read in reads.values()), rate="")
        next_draw = 0.0

        def show(elapsed: float) -> None:
            nonlocal next_draw
            if elapsed < next_draw:
                return
            next_draw = elapsed + 0.1
            for tp, read in reads.items():
                bars.update(tasks[tp], completed=read.records, rate=_rate(read.records, read.nbytes, read.seconds))
            records, nbytes = (sum(getattr(read, name) for read in reads.values()) for name in ("records", "nbytes"))
            bars.update(everything, completed=records, rate=_rate(records, nbytes, elapsed))
            bars.refresh()

        yield show


def _rate(records: int, nbytes: float, seconds: float) -> str:
    seconds = max(seconds, 1e-9)
    return f"{records / seconds / 1e6:6.2f} M records/s {nbytes / seconds / 1e6:8.1f} MB/s"


def _report(reads: dict[TopicPartition, _Read], seconds: float, wire: int, checked: int, right: bool) -> None:
    title = f"fastfetch {fastfetch.__version__}, CRC-32C: {fastfetch.build_info()['crc32c']}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("partition", "codec"):
        table.add_column(name, no_wrap=True)
    for name in ("records", "MB wire", "MB", "MB/s", "end", "committed"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for tp, read in reads.items():
        mark = "[green]equal[/green]" if read.is_right else "[red]DIFFERS[/red]"
        sizes = (read.made.size / 1e6, read.nbytes / 1e6, read.nbytes / max(read.seconds, 1e-9) / 1e6)
        committed = "none" if read.committed is None else f"{read.committed:,}"
        table.add_row(
            str(tp), read.made.codec, f"{read.records:,}", *(f"{size:,.1f}" for size in sizes), f"{read.end:,}", committed, mark
        )
    console = Console()
    console.print(table)
    records, nbytes = (sum(getattr(read, name) for read in reads.values()) for name in ("records", "nbytes"))
    console.print(
        f"{records:,} records in {seconds:.2f} s: {_rate(records, nbytes, seconds).strip()}. CRC checked: "
        f"{checked / 1e6:,.1f} of {wire / 1e6:,.1f} MB. "
        + ("Committed offset = end offset in every partition." if right else "What arrived is not what was made."),
        highlight=False,
        soft_wrap=True,
    )
