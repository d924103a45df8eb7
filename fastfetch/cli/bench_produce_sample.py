"""`kfetch bench produce-sample`: fills a topic with made-up data, to be measured with."""

from __future__ import annotations

import click

from fastfetch.benchmark.external import ToolError
from fastfetch.benchmark.producing import CODECS, Sample, confluent_kafka, ends, fill, prepare
from fastfetch.benchmark.shapes import SHAPES
from fastfetch.cli.measured import saying
from fastfetch.cli.options import brokers_option, connect, settings_option
from fastfetch.cli.output import human_bytes
from fastfetch.errors import FastFetchError

__all__ = ["command"]


@click.command("produce-sample", short_help="Fill a topic with made-up data, to be measured with.")
@click.argument("topic")
@brokers_option("Brokers to write to.")
@click.option("-n", "--records", type=click.IntRange(min=1), metavar="N", help="How many; 1,000,000 if nothing is said.")
@click.option("--bytes", "nbytes", type=click.IntRange(min=1), metavar="N", help="Until keys and values have so many bytes.")
@click.option("--shape", type=click.Choice(list(SHAPES)), default="json", show_default=True, help="Kind of data.")
@click.option(
    "--value-bytes", type=click.IntRange(0, 16 << 20), metavar="N", help="Of each value; default as is usual for the shape."
)
@click.option("--key-bytes", type=click.IntRange(0, 32767), metavar="N", help="Of each key, 0 for none; default as is usual.")
@click.option("--headers", type=click.IntRange(0, 100), default=0, show_default=True, metavar="N", help="Of each record.")
@click.option("--codec", type=click.Choice(CODECS), default="lz4", show_default=True, help="Compression.")
@click.option("--batch-records", type=click.IntRange(1, 1_000_000), metavar="N", help="Records a batch, in place of its bytes.")
@click.option(
    "--batch-bytes", type=click.IntRange(1, 16 << 20), default=16_384, show_default=True, help="Of a batch, before compression."
)
@click.option(
    "--linger", type=click.FloatRange(0, 900_000), default=100, show_default=True, metavar="MS", help="For a batch to fill."
)
@click.option("--partitions", type=click.IntRange(1, 10_000), metavar="N", help="Of the topic, if it is made; default 1.")
@click.option("--append", is_flag=True, help="Also to a topic that has records.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same one makes the same records.")
@settings_option()
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
def command(
    topic: str,
    brokers: str | None,
    records: int | None,
    nbytes: int | None,
    shape: str,
    value_bytes: int | None,
    key_bytes: int | None,
    headers: int,
    codec: str,
    batch_records: int | None,
    batch_bytes: int,
    linger: float,
    partitions: int | None,
    append: bool,
    seed: int,
    settings: dict[str, str],
    quiet: bool,
) -> None:
    """Fill TOPIC with records of a chosen shape, through confluent-kafka, and check that they are there.

    The topic is made if there is none; one that has records is refused without --append. Partitions take turns.

    \b
      json      events of a web shop, ~205 bytes, keys of 8        logs     lines of a web server, ~130 bytes, with keys
      metrics   lines of an agent, 100 bytes                       text     words, 500 bytes
      letters   random letters, 1024 bytes                         random   random bytes, 256

    \b
      kfetch bench produce-sample bench-json -b 127.0.0.1:9092 --records 5000000 --partitions 8 --codec zstd
    """
    if records is None and nbytes is None:
        records = 1_000_000
    sample = Sample(
        records, nbytes, shape, value_bytes, key_bytes, headers, codec, batch_bytes, batch_records, linger, seed
    )  # fmt: skip
    try:
        confluent_kafka()
    except ToolError as error:
        raise FastFetchError(str(error)) from None
    bootstrap = settings.get("bootstrap.servers", brokers or "")
    with connect(brokers, settings) as consumer, saying(quiet=quiet) as say:
        say(f"{topic}: looking at it")
        count = prepare(consumer, bootstrap, topic, partitions, append=append)
        before = ends(consumer, topic)
        made = fill(bootstrap, topic, count, sample, lambda done, size: say(f"{topic}: {done:,} records, {human_bytes(size)}"))
        after = ends(consumer, topic)
    there = sum(end - before[tp] for tp, end in after.items())
    if there != made.records:
        raise FastFetchError(
            f"{made.records} records were written to {topic}, and its end offsets grew by {there}: did others write too?"
        )
    where = f"{count} partition{'s' * (count > 1)}"
    size = human_bytes(made.nbytes)
    click.echo(f"{topic}: {made.records:,} records, {size} of keys and values in {where}, in {made.seconds:.1f} s", err=True)
