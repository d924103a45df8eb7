"""`kfetch bench decode`: bytes to records without a client around it, by fastfetch, by the floor, and by the peers' decoders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import click

from fastfetch.benchmark.clients import missing, versions
from fastfetch.benchmark.contest import ReadingError
from fastfetch.benchmark.decoders import PEERS
from fastfetch.benchmark.decoding import decode_in_turns, entries
from fastfetch.benchmark.material import Batch, Pieces, of_log, of_topic
from fastfetch.benchmark.results import Failure, Run
from fastfetch.cli import EXIT_FAILED
from fastfetch.cli.measured import Say, file_option, kept, leave_out, new_run, saying, show_rates
from fastfetch.cli.options import brokers_option, connect, settings_option
from fastfetch.errors import FastFetchError, UsageError
from fastfetch.types import TopicPartition

__all__ = ["command"]

_MIB = 1 << 20


def _as_numbers(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    numbers = tuple(dict.fromkeys(int(word) for word in value.split(",") if word.strip().isdigit()))
    if not numbers or len(numbers) != len(set(value.split(","))) or not all(1 <= number <= 64 for number in numbers):
        raise click.BadParameter(f"{value!r} is no list of numbers from 1 to 64, such as 1,2,4", ctx, param)
    return numbers


@click.command("decode", short_help="Segments, or a topic's bytes: each decoder, codec and number of threads.")
@click.argument("sources", metavar="PATH|TOPIC...", nargs=-1, required=True)
@brokers_option("Brokers: what is no path is a topic.")
@click.option("--threads", default="1,2", show_default=True, callback=_as_numbers, help="Numbers of threads to decode with.")
@click.option("--rounds", type=click.IntRange(1, 1000), default=7, show_default=True, help="Turns of each decoder.")
@click.option("--seconds", type=click.FloatRange(0, 60), default=0.5, show_default=True, help="How long a turn takes.")
@click.option("--mb", type=click.IntRange(1, 4096), default=64, show_default=True, help="Inflated MiB to take of each codec.")
@click.option("--piece-mb", type=click.IntRange(1, 64), default=4, show_default=True, help="MiB that a decoder is given at once.")
@file_option()
@settings_option()
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
def command(
    sources: tuple[str, ...],
    brokers: str | None,
    threads: tuple[int, ...],
    rounds: int,
    seconds: float,
    mb: int,
    piece_mb: int,
    path: Path | None,
    settings: dict[str, str],
    quiet: bool,
) -> int:
    """Measure decoders on bytes of yours: .log segments, partition folders such as orders-3/, or topics.

    What there is of each codec is cut into pieces as large as a fetch brings, and decoded again and again in memory: by fastfetch
    into columns, with each number of threads; by the floor, a C program that does only what any decoder has to do; and by the
    decoders of aiokafka and kafka-python, into objects. They take turns. All check every CRC.

    \b
      kfetch bench decode /var/lib/kafka/orders-3
      kfetch bench decode orders payments -b 127.0.0.1:9092 --threads 1,2,4
    """
    told = {"rounds": rounds, "seconds": seconds, "mb": mb, "piece_mb": piece_mb, "sources": list(sources)}
    run = new_run("decode", told)
    for peer in PEERS:
        if missing(peer) is None:
            run.versions |= versions(peer)
    with kept(run, path, show_rates), saying(quiet=quiet) as say:
        for source in sources:
            say(f"{source}: reading")
            pieces = Pieces(piece_mb * _MIB, mb * _MIB)
            with ExitStack() as opened:
                for batch in _batches(source, brokers, settings, opened):
                    pieces.add(batch)
                    if pieces.has_enough:
                        break
            if not pieces.shapes:
                raise FastFetchError(f"{source} has no records")
            _measure(run, source, pieces, threads, rounds, seconds, say)
    return 0 if run.all_readings else EXIT_FAILED


def _batches(source: str, brokers: str | None, settings: dict[str, str], opened: ExitStack) -> Iterator[Batch]:
    """Of a path, or of a topic where there are brokers and no such path."""
    if Path(source).exists():
        return of_log(Path(source))
    if not (brokers or settings.get("bootstrap.servers")):
        raise UsageError(f"there is no {source}, and no brokers were named that may have a topic of that name: -b HOST:PORT")
    consumer = opened.enter_context(connect(brokers, settings, auto_offset_reset="earliest"))
    return of_topic(consumer, [TopicPartition(source, number) for number in sorted(consumer.partitions_for(source))])


def _measure(run: Run, source: str, pieces: Pieces, threads: tuple[int, ...], rounds: int, seconds: float, say: Say) -> None:
    for kind, found in pieces.cut().items():
        for number in threads:
            name = f"{Path(source).name or source} {kind}" + (f" ×{number}" if number > 1 else "")
            run.cases.append(pieces.shapes[kind].case(name, source, threads=number))
            calls, absent = entries(name, found, number)
            for failure in absent:
                leave_out(run, failure)
            for turn, client, got in decode_in_turns(name, found, calls, rounds, seconds, say.turn(name, rounds)):
                if isinstance(got, ReadingError):
                    leave_out(run, Failure(name, client, str(got)))
                elif turn:
                    run.all_readings.append(got)
