"""`kfetch bench consume`: all clients read your topics in turns, each in a process of its own."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import click

from fastfetch.benchmark.clients import Job
from fastfetch.benchmark.consuming import ALL, USUAL, consume_in_turns, settings_of, versions_of
from fastfetch.benchmark.contest import ReadingError, absent
from fastfetch.benchmark.external import ToolError
from fastfetch.benchmark.latency import Pace, follow_in_turns, scratch_topic
from fastfetch.benchmark.material import Shape, of_topic
from fastfetch.benchmark.producing import CODECS, confluent_kafka, has_append_time
from fastfetch.benchmark.results import Case, Failure, Reading, Run
from fastfetch.cli import EXIT_FAILED
from fastfetch.cli.measured import Say, file_option, kept, leave_out, new_run, saying, show_latencies, show_rates
from fastfetch.cli.options import brokers_option, connect, settings_option
from fastfetch.consumer import Consumer
from fastfetch.errors import FastFetchError
from fastfetch.types import TopicPartition

__all__ = ["command"]

_LATENCY_ROUNDS = 3  # at most


@click.command(
    "consume", short_help="Your topics, read by each client that is here.",
    epilog=f"Clients: {', '.join(USUAL)}; confluent-kafka 300 and confluent_api 300 with so many records a call. All but "
    "java and franz-go also with ' defaults' behind the name: without any setting.",
)  # fmt: skip
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
@brokers_option("Brokers to read from.")
@click.option(
    "--client", "clients", type=click.Choice(ALL), metavar="NAME", multiple=True,
    help="Only this client, and fastfetch to compare it with; may be given several times.",
)  # fmt: skip
@click.option("--rounds", type=click.IntRange(1, 1000), default=5, show_default=True, help="Turns of each client.")
@click.option(
    "--records", type=click.IntRange(min=1), default=5_000_000, show_default=True, help="Records to read of a topic, at most."
)
@click.option(
    "--seconds", type=click.FloatRange(0.01), default=10.0, show_default=True, help="A turn takes about so long at most."
)
@click.option(
    "--warm-up", type=click.IntRange(min=1), default=200_000, show_default=True, help="Records of the round that does not count."
)
@click.option("--latency", "rate", type=click.FloatRange(0.1), metavar="RATE", help="Then also follow RATE records a second.")
@click.option("--latency-seconds", type=click.FloatRange(0.1), default=5.0, show_default=True, help="How long in a turn.")
@click.option("--latency-topic", metavar="TOPIC", help="Write to this one, in place of one that is made and deleted.")
@file_option()
@settings_option()
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
def command(
    topics: tuple[str, ...],
    brokers: str | None,
    clients: tuple[str, ...],
    rounds: int,
    records: int,
    seconds: float,
    warm_up: int,
    rate: float | None,
    latency_seconds: float,
    latency_topic: str | None,
    path: Path | None,
    settings: dict[str, str],
    quiet: bool,
) -> int:
    """Let every client that is installed read topics from their beginning, in turns, and tell how fast each was.

    Records a second, bytes a second on the wire and inflated, processor time a record, peak memory; medians over the rounds, and
    how many times faster fastfetch is. Clients that are not here are left out. -X sets fastfetch; the others have what the run's
    file says. A slow client reads fewer of the records. Nothing is committed.

    With --latency, a producer writes to a topic of its own, and it is told how old records were when each client had them.

    \b
      kfetch bench consume orders -b 127.0.0.1:9092
      kfetch bench consume orders -b 127.0.0.1:9092 --client confluent-kafka --rounds 9 --latency 1000
    """
    own = {name: value for name, value in settings.items() if name != "bootstrap.servers"}
    run = new_run("consume", {
        "rounds": rounds, "records": records, "seconds": seconds, "warm_up": warm_up, "latency_rate": rate,
        "latency_seconds": latency_seconds if rate else None,
    })  # fmt: skip
    with connect(brokers, settings) as consumer:
        found = {topic: sorted(consumer.partitions_for(topic)) for topic in topics}  # before anything is built or fetched
    bootstrap = settings.get("bootstrap.servers", brokers or "")
    with kept(run, path, _show), saying(quiet=quiet) as say:
        if rate is not None:
            _check_producer()
        names = _here(run, dict.fromkeys(("fastfetch", *clients) if clients else USUAL), own, say)
        for topic, numbers in found.items():
            say(f"{topic}: looking at its records")
            shape = _look(topic, numbers, records, brokers, settings)
            case = shape.case(topic, topic, partitions=len(numbers))
            run.cases.append(case)
            job = Job(bootstrap, topic, min(records, case.records), len(numbers), settings=own)
            before = say.turn(topic, rounds)
            turns = consume_in_turns(job, case, names, rounds=rounds, warm_up=warm_up, seconds=seconds, before=before)
            for turn, client, got in turns:
                _note(run, case, client, turn, got)
            if rate is not None:
                codec = case.codec if case.codec in CODECS else "none"
                pace = Pace(rate, latency_seconds, round(case.record_bytes), codec, shape.has_append_time)
                failed = {failure.client for failure in run.failed if failure.case == case.id}
                left = [name for name in names if name not in failed]
                with connect(brokers, settings) as consumer:
                    _follow(run, consumer, job, case, left, pace, latency_topic, say)
    return 0 if run.all_readings else EXIT_FAILED


def _here(run: Run, wanted: dict[str, None], own: dict[str, str], say: Say) -> list[str]:
    """Those of the clients that can be tried. Others are left out."""
    names = []
    for name in wanted:
        say(f"{name}: is it here?")
        if why := absent(name):
            leave_out(run, Failure(None, name, why))
        else:
            names.append(name)
    run.versions |= versions_of(names)
    run.settings["clients"] = {name: settings_of(name, own) for name in names}
    return names


def _look(topic: str, numbers: list[int], records: int, brokers: str | None, settings: dict[str, str]) -> Shape:
    """What so many of its records are like. Raises FastFetchError if there are none."""
    shape = Shape()
    with connect(brokers, settings, auto_offset_reset="earliest") as consumer:
        for batch in of_topic(consumer, [TopicPartition(topic, number) for number in numbers]):
            shape.add(batch)
            if shape.records >= records:
                break
    if not shape.records:
        raise FastFetchError(f"topic {topic} has no records; kfetch bench produce-sample {topic} makes some")
    return shape


def _note(run: Run, case: Case, client: str, turn: int, got: Reading | ReadingError) -> None:
    if isinstance(got, ReadingError):
        leave_out(run, Failure(case.id, client, str(got)))
    elif turn:
        run.all_readings.append(got)


def _check_producer() -> None:
    try:
        confluent_kafka()
    except ToolError as error:
        raise FastFetchError(f"--latency: {error}") from None


def _follow(
    run: Run, consumer: Consumer, job: Job, case: Case, names: list[str], pace: Pace, topic: str | None, say: Say
) -> None:
    """The turns that are about latency. Without a topic, one is made."""
    rounds = min(run.settings["rounds"], _LATENCY_ROUNDS)
    with ExitStack() as made:
        if topic is None:
            say("making a topic to write to")
            topic = made.enter_context(scratch_topic(consumer, job.bootstrap, case.partitions, append_time=pace.append_time))
        else:
            pace = replace(pace, append_time=has_append_time(job.bootstrap, topic))
        before = say.turn(f"{case.topic}, latency", rounds)
        turns = follow_in_turns(consumer, replace(job, topic=topic), case, names, pace, rounds=rounds, before=before)
        for turn, client, got in turns:
            _note(run, case, client, turn, got)


def _show(run: Run) -> None:
    show_rates(run)
    if any(reading.latency_ms is not None for reading in run.all_readings):
        click.echo()
        show_latencies(run)
