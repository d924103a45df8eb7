"""At most once: commit first, process then. A record may be lost, none is processed twice.

    python examples/at_most_once.py orders --brokers 127.0.0.1:9092 --group mailer

For work that must not be done twice and may be left out: an alert, a mail. Start it as often as you like with one group; the
members share the topic. Killed between its commit and the end of `process`, a member loses what it had left of one block, and
no more. How large a block gets is for `-X max.partition.fetch.bytes=...` to say.
"""

from __future__ import annotations

import argparse
import sys

import fastfetch
from fastfetch import errors


def process(block: fastfetch.RecordBlock) -> None:
    """Your work. Here: a line for each record."""
    name = f"{block.topic}-{block.partition}"
    sys.stdout.write("".join(f"{name} {r.offset} {(r.value or b'').decode(errors='backslashreplace')}\n" for r in block))
    sys.stdout.flush()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("topics", nargs="+")
    arguments.add_argument("--brokers", default="127.0.0.1:9092", metavar="HOST:PORT,...")
    arguments.add_argument("--group", default="at-most-once")
    arguments.add_argument("--idle-ms", type=int, help="end when nothing came for so long; default: never")
    arguments.add_argument("-X", dest="settings", type=setting, action="append", default=[], metavar="NAME=VALUE")
    args = arguments.parse_args()
    settings = {"auto.offset.reset": "earliest", **dict(args.settings)}

    with fastfetch.Consumer(settings, bootstrap_servers=args.brokers, group_id=args.group, enable_auto_commit=False) as consumer:
        consumer.subscribe(args.topics)
        for block in consumer.blocks(timeout_ms=args.idle_ms):
            try:
                consumer.commit()  # the position behind the block: from here on nobody else will be given it
            except (errors.RebalanceInProgressError, errors.CommitFailedError, errors.TimeoutError) as error:
                print(f"not processed: {error}", file=sys.stderr)
                take_back(consumer, block)
            else:
                process(block)


def take_back(consumer: fastfetch.Consumer, block: fastfetch.RecordBlock) -> None:
    """Have the block handed out again; if its partition has gone to another member meanwhile, that one is given it."""
    tp = fastfetch.TopicPartition(block.topic, block.partition)
    if tp in consumer.assignment():
        consumer.seek(tp, int(block.offsets[0]))


def setting(text: str) -> tuple[str, str]:
    """Any setting of the consumer, such as session.timeout.ms=10000."""
    name, value = text.split("=", 1)
    return name, value


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
