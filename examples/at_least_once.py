"""At least once: process first, commit then. No record is lost, some are processed twice after a crash.

    python examples/at_least_once.py orders --brokers 127.0.0.1:9092 --group loader --commit-every 10000

For work that may be done twice without harm: an upsert, a value that is set and not added to. Start it as often as you like with
one group; the members share the topic. Killed, a member leaves what it had processed since its last commit to be processed once
more: fewer than --commit-every records, and one block. A partition that goes to another member in good order is committed
before it goes, and nothing of it comes twice.

Without a line about commits the default settings give the same guarantee, as long as each record is processed before the next
call of poll: automatic commits, every five seconds, count only what earlier calls had handed out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection

import fastfetch
from fastfetch import OffsetAndMetadata, TopicPartition, errors


def process(block: fastfetch.RecordBlock) -> None:
    """Your work. Here: a line for each record."""
    name = f"{block.topic}-{block.partition}"
    sys.stdout.write("".join(f"{name} {r.offset} {(r.value or b'').decode(errors='backslashreplace')}\n" for r in block))
    sys.stdout.flush()


class Progress(fastfetch.RebalanceListener):
    """What has been processed and is not committed; as a rebalance listener it commits that before partitions go.

    Not the consumer's positions: they count what was handed out, and an exception in `process` may have come in between.
    """

    def __init__(self, consumer: fastfetch.Consumer) -> None:
        self._consumer = consumer
        self._next: dict[TopicPartition, OffsetAndMetadata] = {}
        self.records = 0

    def add(self, block: fastfetch.RecordBlock) -> None:
        epoch = block.last_leader_epoch
        at = OffsetAndMetadata(block.next_offset, leader_epoch=epoch if epoch >= 0 else None)
        self._next[TopicPartition(block.topic, block.partition)] = at
        self.records += len(block)

    def commit(self) -> None:
        """If that fails, nothing is lost: a later commit has it, or the next owner of the partition repeats it."""
        if not self._next:
            return
        try:
            self._consumer.commit(self._next)
        except (errors.RebalanceInProgressError, errors.CommitFailedError, errors.TimeoutError) as error:
            print(f"not committed: {error}", file=sys.stderr)
        else:
            self._next = {}
            self.records = 0

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.commit()
        self.on_partitions_lost(partitions)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """They belong to others, who go on at the last commit."""
        for tp in partitions:
            self._next.pop(tp, None)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("topics", nargs="+")
    arguments.add_argument("--brokers", default="127.0.0.1:9092", metavar="HOST:PORT,...")
    arguments.add_argument("--group", default="at-least-once")
    arguments.add_argument("--commit-every", type=int, default=10_000, metavar="RECORDS")
    arguments.add_argument("--idle-ms", type=int, help="end when nothing came for so long; default: never")
    arguments.add_argument("-X", dest="settings", type=setting, action="append", default=[], metavar="NAME=VALUE")
    args = arguments.parse_args()
    settings = {"auto.offset.reset": "earliest", **dict(args.settings)}

    with fastfetch.Consumer(settings, bootstrap_servers=args.brokers, group_id=args.group, enable_auto_commit=False) as consumer:
        progress = Progress(consumer)
        consumer.subscribe(args.topics, listener=progress)
        for block in consumer.blocks(timeout_ms=args.idle_ms):
            process(block)
            progress.add(block)
            if progress.records >= args.commit_every:
                progress.commit()
        # Closing gives the partitions up: the listener commits what is left.


def setting(text: str) -> tuple[str, str]:
    """Any setting of the consumer, such as session.timeout.ms=10000."""
    name, value = text.split("=", 1)
    return name, value


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
