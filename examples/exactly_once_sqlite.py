"""Exactly once: the records and the position behind them are stored in one transaction, here of SQLite.

    python examples/exactly_once_sqlite.py orders --brokers 127.0.0.1:9092 --group loader --database orders.db
    sqlite3 orders.db "SELECT partition, COUNT(*), MAX(offset) FROM records GROUP BY partition"

A partition starts where the database says, not where the group does: the listener seeks as soon as it is assigned. So a crash at
any moment leaves either both, the rows and the position, or neither. Start it as often as you like with one group and one
database; the members share the topic.

A member that was away for too long (a stopped process, a sleeping laptop) may still have a block of a partition that has gone to
another member. The database keeps it from storing that twice: a position is replaced only if it is the one that this member went
on from.

Commits to the group are made for the eyes of monitoring alone (`kfetch lag`); nothing here reads them.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
from collections.abc import Collection

import fastfetch
from fastfetch import OffsetAndMetadata, TopicPartition

SCHEMA = """
CREATE TABLE IF NOT EXISTS records (topic TEXT, partition INTEGER, offset INTEGER, value BLOB);
CREATE TABLE IF NOT EXISTS positions (topic TEXT, partition INTEGER, next INTEGER, epoch INTEGER, PRIMARY KEY (topic, partition));
"""
READ = "SELECT next, epoch FROM positions WHERE topic = ? AND partition = ?"
# Changes no row if the position is another one than this member went on from.
ADVANCE = """
INSERT INTO positions (topic, partition, next, epoch) VALUES (:topic, :partition, :next, :epoch)
ON CONFLICT (topic, partition) DO UPDATE SET next = :next, epoch = :epoch WHERE next = :went_on_from
"""


class OvertakenError(Exception):
    """Another member has stored records of this partition meanwhile."""


class Store(fastfetch.RebalanceListener):
    """Rows and positions in one database; as a rebalance listener it sets each new partition to its stored position."""

    def __init__(self, path: str, consumer: fastfetch.Consumer) -> None:
        self._database = sqlite3.connect(path, timeout=60)
        self._database.executescript(SCHEMA)
        self._consumer = consumer
        self._next: dict[TopicPartition, int | None] = {}

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            self.restore(tp)

    def restore(self, tp: TopicPartition) -> None:
        """Go on at the stored position; the leader epoch beside it tells whether the log was cut below it (KIP-320)."""
        found = self._database.execute(READ, tp).fetchone()
        if found is None:
            self._next[tp] = None
            self._consumer.seek_to_beginning(tp)
        else:
            self._next[tp], epoch = found
            self._consumer.seek(tp, OffsetAndMetadata(found[0], "", epoch if epoch >= 0 else None))

    def add(self, block: fastfetch.RecordBlock) -> None:
        """Rows and position, both or neither. Raises OvertakenError."""
        tp = TopicPartition(block.topic, block.partition)
        position = {
            "topic": block.topic, "partition": block.partition, "next": block.next_offset, "epoch": block.last_leader_epoch,
            "went_on_from": self._next[tp],
        }  # fmt: skip
        with self._database:  # commits, or rolls back if anything is raised
            if self._database.execute(ADVANCE, position).rowcount != 1:
                raise OvertakenError(f"{tp}: another member has gone on from {self._next[tp]}")
            rows = ((*tp, record.offset, record.value) for record in block)
            self._database.executemany("INSERT INTO records VALUES (?, ?, ?, ?)", rows)
        self._next[tp] = block.next_offset


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("topics", nargs="+")
    arguments.add_argument("--brokers", default="127.0.0.1:9092", metavar="HOST:PORT,...")
    arguments.add_argument("--group", default="exactly-once")
    arguments.add_argument("--database", default="records.db", metavar="FILE")
    arguments.add_argument("--idle-ms", type=int, help="end when nothing came for so long; default: never")
    arguments.add_argument("-X", dest="settings", type=setting, action="append", default=[], metavar="NAME=VALUE")
    args = arguments.parse_args()
    settings = {
        "isolation.level": "read_committed",  # records of transactions that were aborted are no records
        **dict(args.settings),
    }

    with fastfetch.Consumer(settings, bootstrap_servers=args.brokers, group_id=args.group, enable_auto_commit=False) as consumer:
        store = Store(args.database, consumer)
        consumer.subscribe(args.topics, listener=store)
        for block in consumer.blocks(timeout_ms=args.idle_ms):
            try:
                store.add(block)
            except OvertakenError as error:
                print(f"not stored: {error}", file=sys.stderr)
                tp = TopicPartition(block.topic, block.partition)
                if tp in consumer.assignment():  # if it is ours again, or the next poll tells that it is not
                    store.restore(tp)
            else:
                consumer.commit_async()  # for monitoring


def setting(text: str) -> tuple[str, str]:
    """Any setting of the consumer, such as session.timeout.ms=10000."""
    name, value = text.split("=", 1)
    return name, value


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
