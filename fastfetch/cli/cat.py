"""`kfetch cat`: records of a topic, or of segments on disk, to stdout."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Protocol

import click

from fastfetch import log
from fastfetch.cli.formats import Formatter, compile_format
from fastfetch.cli.options import brokers_option, isolation_option, parse_partitions, settings_option
from fastfetch.cli.output import Output, Progress
from fastfetch.cli.ranges import Range, parse_range
from fastfetch.errors import FastFetchError, UsageError
from fastfetch.records import RecordBlock
from fastfetch.segments import Log

__all__ = ["command"]

# Rows that are formatted at once: enough to make the columns pay, few enough that a signal is heard soon.
_ROWS = 8192
_IDLE_S = 0.1


def _as_range(ctx: click.Context, param: click.Parameter, value: str) -> Range:
    try:
        return parse_range(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def _as_partitions(ctx: click.Context, param: click.Parameter, value: str | None) -> frozenset[int] | None:
    try:
        return None if value is None else parse_partitions(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


@click.command("cat", short_help="Records of a topic, or of segments on disk, to stdout.")
@click.argument("source")
@brokers_option("Brokers: SOURCE is a topic.")
@click.option(
    "-o", "--offset", "span", metavar="RANGE", callback=_as_range, default="start", show_default=True, help="Start and stop."
)
@click.option("-n", "--count", type=click.IntRange(min=0), metavar="N", help="Stop after that many records.")
@click.option("-p", "--partitions", metavar="LIST", callback=_as_partitions, help="Only these, such as 0,3,5-8.")
@click.option(
    "-f", "--format", "template", metavar="TEMPLATE|json", default=r"%v\n", show_default=True, help="What to write of a record."
)
@click.option("--null", default="", help="What a template writes for null.")
@click.option("-e", "--exit", "exit_at_end", is_flag=True, help="Stop at the end as it was at the start. Default for a PATH.")
@click.option("-F", "--follow", is_flag=True, help="Wait for more at the end. Default for a TOPIC, unless -o has a stop.")
@isolation_option()
@settings_option()
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
@click.pass_context
def command(
    ctx: click.Context,
    source: str,
    brokers: str | None,
    span: Range,
    count: int | None,
    partitions: frozenset[int] | None,
    template: str,
    null: str,
    exit_at_end: bool,
    follow: bool,
    isolation: log.Isolation,
    settings: dict[str, str],
    quiet: bool,
) -> None:
    """Write records to stdout.

    SOURCE is a topic if brokers are given (-b, -X bootstrap.servers=… or FASTFETCH_BOOTSTRAP_SERVERS); else a .log segment
    or a partition folder such as orders-3/. A path that exists wins over the environment.

    \b
    Ranges (-o): start, end, 1000, -100 (before the end), @2026-01-31T12:00Z, @-1h,
      or from:to, where "to" is not included: 10:20, :end, @2026-01-01:@end, @-2h:-1h

    \b
    Templates (-f):
      %t topic   %p partition   %o offset   %T timestamp (ms)   %e leader epoch
      %k key     %v or %s value   %h headers
      %K %S lengths of key and value, -1 for null   %R length of the value as int32
      \\n \\t \\r \\0 \\\\ \\xHH   %% for a percent sign
    or -f json: JSON lines, with "value_base64" where a value is not UTF-8
    """
    if exit_at_end and follow:
        raise click.UsageError("--exit and --follow exclude each other")
    if follow and span.stop is not None:
        raise click.UsageError("a range with a stop ends there; leave out --follow")
    try:
        write = compile_format(template, null.encode(errors="surrogateescape"))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--format") from None
    given = click.core.ParameterSource.COMMANDLINE
    is_topic = "bootstrap.servers" in settings or ctx.get_parameter_source("brokers") is given
    output = Output()
    if is_topic or (brokers is not None and not _looks_like_a_path(source)):
        from fastfetch.cli.topics import Topic

        if "isolation.level" in settings and ctx.get_parameter_source("isolation") is given:
            raise click.UsageError("--isolation and -X isolation.level exclude each other")
        config = {"bootstrap.servers": brokers, "isolation.level": isolation} | settings
        with Topic(source, config, span, partitions, follow=not exit_at_end and span.stop is None) as topic:
            _show(topic, write, output, count, quiet)
    elif not _looks_like_a_path(source):
        raise click.UsageError(f"{source} is no file or folder; to read a topic of that name, say where: -b 127.0.0.1:9092")
    elif settings:
        raise click.UsageError(f"-X {next(iter(settings))} is a setting for reading a topic, and {source} is a path")
    else:
        _show(_Disk(source, span, partitions, isolation, follow=follow), write, output, count, quiet)


def _looks_like_a_path(source: str) -> bool:
    return os.sep in source or os.path.exists(source) or source.endswith(".log")


class Source(Protocol):
    """Blocks in order. None in between says that there is nothing right now."""

    total: int | None  # offsets from the start to the stop, if there is one
    done: int  # how many of them lie behind

    def __iter__(self) -> Iterator[RecordBlock | None]: ...


def _show(source: Source, write: Formatter, output: Output, count: int | None, quiet: bool) -> None:
    with Progress(quiet=quiet, total=source.total) as progress:
        _copy(source, write, output, count, progress)


def _copy(source: Source, write: Formatter, output: Output, count: int | None, progress: Progress) -> None:
    left = count
    try:
        for block in source if count != 0 else ():
            if block is None:
                output.flush()
                output.raise_if_reader_gone()
                continue
            if left is not None:
                block = block[:left]
                left -= len(block)
            for at in range(0, len(block), _ROWS):
                output.write(write(block[at : at + _ROWS]))
            progress.add(len(block), block.nbytes, source.done)
            if left == 0:
                break
    except FastFetchError:
        output.flush()  # what came before the error is good
        raise
    output.flush()


class _Disk:
    """Segments on disk; with `follow`, also what is appended to them."""

    def __init__(
        self, path: str, span: Range, partitions: frozenset[int] | None, isolation: log.Isolation, *, follow: bool
    ) -> None:
        self._log = Log(path)
        if partitions is not None and self._log.partition not in partitions:
            raise UsageError(f"{path} holds partition {self._log.partition}, which --partitions leaves out")
        self._isolation, self._follow = isolation, follow
        start, end = log.log_bounds(path)

        def at_time(timestamp_ms: int) -> int | None:
            return log.offset_for_time(path, timestamp_ms)

        self._first = span.first.resolve(start, end, at_time)
        self._stop = None if span.stop is None else span.stop.resolve(start, end, at_time)
        self.total = None if follow else max(min(end, end if self._stop is None else self._stop) - self._first, 0)
        self.done = 0

    def __iter__(self) -> Iterator[RecordBlock | None]:
        position = self._first
        while True:
            seen = self._log.listing()
            for block in log.read_log(self._log.path, start=position, stop=self._stop, isolation=self._isolation):
                position = block.next_offset
                self.done = position - self._first
                yield block
            if not self._follow:
                return
            while self._log.listing() == seen:
                yield None
                time.sleep(_IDLE_S)
