"""A member of a consumer group as a process of its own, of one client or another: `python group_member.py CLIENT SETTINGS`.

SETTINGS are JSON; `groups.py`, which starts it, says what they are. What happens is told on stdout, one JSON line an event, with
the time of the monotonic clock, which is the same in all processes; a line is out before the member goes on, so whoever kills it
knows all it has done. Commands come in on stdin, one a line; when that ends, so does the process.

    close        leave in good order and end               rebalance         ask for one (fastfetch)
    commit       commit what was handed out                subscribe T …     to these topics instead (fastfetch)
    hold         don't poll until the next `go`; other commands are still obeyed
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NoReturn

POLL_MS = 100
TP = tuple[str, int]

commands: queue.SimpleQueue[str] = queue.SimpleQueue()


def tell(event: str, **more: object) -> None:
    sys.stdout.write(json.dumps({"event": event, "at": time.monotonic()} | more) + "\n")
    sys.stdout.flush()


def listen() -> None:
    for line in sys.stdin:
        commands.put(line.strip())
    os._exit(1)  # whoever started us is gone


def number_of(value: bytes, partition: int) -> int:
    """The place in its partition that a record says it has (see `history.value_of`)."""
    said, _, number = value.decode().rpartition(", record ")
    if said != f"partition {partition}":
        raise AssertionError(f"{value!r} was handed out as a record of partition {partition}")
    return int(number)


class Member:
    """What is the same with each client: the loop, commits every so many records, the rebalance listener."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self.next: dict[TP, int | None] = {}  # of partitions that are ours: the number after the last one handed out
        self.uncommitted = 0

    def run(self) -> None:
        is_held = False
        while True:
            try:
                command = commands.get(block=is_held)
            except queue.Empty:
                self.step()
                continue
            name, *arguments = command.split()
            if name == "close":
                self.close()
                tell("closed")
                return
            if name in ("hold", "go"):
                is_held = name == "hold"
                tell(name)
            else:
                getattr(self, name)(*arguments)

    def step(self) -> None:
        try:
            found = list(self.poll())
        except Exception as error:
            tell("raised", error=type(error).__name__, text=str(error))
            return
        for topic, partition, numbers in found:
            # One event for each run, so that a hole shows.
            for _, run in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
                first, *rest = (number for _, number in run)
                tell("records", partition=[topic, partition], first=first, count=1 + len(rest))
            self.next[topic, partition] = numbers[-1] + 1
            self.uncommitted += len(numbers)
        if self.settings["commit_every"] and self.uncommitted >= self.settings["commit_every"]:
            self.commit()

    def commit(self) -> None:
        upto = self.upto()
        try:
            if upto:
                self.store(upto)
        except Exception as error:
            self.refused(error)
        else:
            self.committed(upto)

    def upto(self) -> dict[TP, int]:
        """What a commit made now covers."""
        self.uncommitted = 0
        return {tp: number for tp, number in self.next.items() if number is not None}

    def committed(self, upto: Mapping[TP, int]) -> None:
        tell("committed", upto=[[*tp, number] for tp, number in upto.items()])

    def refused(self, error: Exception) -> None:
        tell("refused", error=type(error).__name__, text=str(error))

    def assigned(self, partitions: Iterable[TP]) -> None:
        self.next |= dict.fromkeys(partitions)
        tell("assigned", partitions=list(partitions))

    def revoked(self, partitions: Iterable[TP]) -> None:
        if self.settings["commit_every"]:
            self.commit()
        self.gone("revoked", partitions)

    def gone(self, how: str, partitions: Iterable[TP]) -> None:
        for tp in partitions:
            self.next.pop(tp, None)
        tell(how, partitions=list(partitions))

    def lost(self, partitions: Iterable[TP]) -> None:
        self.gone("lost", partitions)

    # What each client does its own way.

    def poll(self) -> Iterator[tuple[str, int, list[int]]]:
        raise NotImplementedError

    def store(self, upto: dict[TP, int]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


def fastfetch_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    config = {
        "bootstrap_servers": settings["servers"],
        "group_id": settings["group"],
        "auto_offset_reset": "earliest",
        "enable_auto_commit": settings["auto_commit"],
        "metadata_max_age_ms": settings["metadata_ms"],
        "isolation_level": settings["isolation"],
        "group_instance_id": settings["instance"],
        "group_protocol": settings["protocol"],
    }
    if settings["protocol"] == "classic":
        config |= {
            "session_timeout_ms": settings["session_ms"],
            "heartbeat_interval_ms": settings["heartbeat_ms"],
            "partition_assignment_strategy": [assignor(name) for name in settings["strategies"]],
        }
    return config | settings.get("config", {})


def assignor(name: str) -> Any:
    """The one of that name, telling when it is used: this member leads the group."""
    from fastfetch.assignors import CooperativeStickyAssignor, RangeAssignor, RoundRobinAssignor

    kind = {"range": RangeAssignor, "roundrobin": RoundRobinAssignor, "cooperative-sticky": CooperativeStickyAssignor}[name]

    class Telling(kind):  # type: ignore[misc, valid-type]
        def assign(self, cluster: Any, subscriptions: Any) -> Any:
            tell("led", members=len(subscriptions))
            return super().assign(cluster, subscriptions)

    return Telling()


class FastFetch(Member):
    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        import fastfetch

        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
        self.consumer = fastfetch.Consumer(**fastfetch_settings(settings))
        self.consumer.subscribe(settings["topics"], pattern=settings["pattern"], listener=self)

    def on_partitions_assigned(self, partitions: Collection[Any]) -> None:
        self.assigned([tuple(tp) for tp in partitions])

    def on_partitions_revoked(self, partitions: Collection[Any]) -> None:
        self.revoked([tuple(tp) for tp in partitions])

    def on_partitions_lost(self, partitions: Collection[Any]) -> None:
        self.lost([tuple(tp) for tp in partitions])

    def poll(self) -> Iterator[tuple[str, int, list[int]]]:
        for block in self.consumer.poll_blocks(timeout_ms=POLL_MS, max_records=self.settings["max_records"]):
            yield block.topic, block.partition, [number_of(value, block.partition) for value in block.values() if value]

    def store(self, upto: dict[TP, int]) -> None:
        self.consumer.commit(timeout_ms=10_000)

    def rebalance(self) -> None:
        self.consumer.enforce_rebalance("asked to")

    def subscribe(self, *topics: str) -> None:
        self.consumer.subscribe(topics, listener=self)

    def close(self) -> None:
        self.consumer.close(timeout_ms=10_000)


class AsyncFastFetch(Member):
    """Listeners are coroutine functions."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        import fastfetch

        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
        self.loop = asyncio.new_event_loop()
        self.consumer = fastfetch.AsyncConsumer(**fastfetch_settings(settings))
        self.consumer.subscribe(settings["topics"], pattern=settings["pattern"], listener=self)

    async def on_partitions_assigned(self, partitions: Collection[Any]) -> None:
        await asyncio.sleep(0.01)
        self.assigned([tuple(tp) for tp in partitions])

    async def on_partitions_revoked(self, partitions: Collection[Any]) -> None:
        await asyncio.sleep(0.01)
        if self.settings["commit_every"]:
            upto = self.upto()
            try:
                await self.consumer.commit(timeout_ms=10_000)
            except Exception as error:
                self.refused(error)
            else:
                self.committed(upto)
        self.gone("revoked", [tuple(tp) for tp in partitions])

    async def on_partitions_lost(self, partitions: Collection[Any]) -> None:
        self.lost([tuple(tp) for tp in partitions])

    def poll(self) -> Iterator[tuple[str, int, list[int]]]:
        for block in self.loop.run_until_complete(
            self.consumer.poll_blocks(timeout_ms=POLL_MS, max_records=self.settings["max_records"])
        ):
            yield block.topic, block.partition, [number_of(value, block.partition) for value in block.values() if value]

    def store(self, upto: dict[TP, int]) -> None:
        self.loop.run_until_complete(self.consumer.commit(timeout_ms=10_000))

    def close(self) -> None:
        self.loop.run_until_complete(self.consumer.close(timeout_ms=10_000))
        self.loop.close()


class Confluent(Member):
    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        import confluent_kafka

        self.kafka = confluent_kafka
        config = {
            "bootstrap.servers": settings["servers"],
            "group.id": settings["group"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": settings["auto_commit"],
            "isolation.level": settings["isolation"],
            "fetch.wait.max.ms": 100,
            "group.protocol": settings["protocol"],
        }
        if settings["protocol"] == "classic":
            config |= {
                "session.timeout.ms": settings["session_ms"],
                "heartbeat.interval.ms": settings["heartbeat_ms"],
                "partition.assignment.strategy": ",".join(settings["strategies"]),
            }
        if settings["instance"]:
            config["group.instance.id"] = settings["instance"]
        self.consumer = confluent_kafka.Consumer(config)
        self.consumer.subscribe(
            settings["topics"],
            on_assign=lambda _, partitions: self.assigned([(tp.topic, tp.partition) for tp in partitions]),
            on_revoke=lambda _, partitions: self.revoked([(tp.topic, tp.partition) for tp in partitions]),
            on_lost=lambda _, partitions: self.lost([(tp.topic, tp.partition) for tp in partitions]),
        )

    def poll(self) -> Iterator[tuple[str, int, list[int]]]:
        found: dict[TP, list[int]] = {}
        for message in self.consumer.consume(self.settings["max_records"], POLL_MS / 1000):
            if message.error() is not None:
                raise self.kafka.KafkaException(message.error())
            tp = message.topic(), message.partition()
            found.setdefault(tp, []).append(number_of(message.value(), tp[1]))
        for (topic, partition), numbers in found.items():
            yield topic, partition, numbers

    def store(self, upto: dict[TP, int]) -> None:
        offsets = [self.kafka.TopicPartition(*tp, number) for tp, number in upto.items()]
        for stored in self.consumer.commit(offsets=offsets, asynchronous=False):
            if stored.error is not None:
                raise self.kafka.KafkaException(stored.error)

    def close(self) -> None:
        self.consumer.close()


class KafkaPython(Member):
    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        from kafka import AsyncConsumerRebalanceListener, KafkaConsumer
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
        from kafka.coordinator.assignors.range import RangePartitionAssignor
        from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

        kinds = (RangePartitionAssignor, RoundRobinPartitionAssignor, CooperativeStickyAssignor)
        member = self

        class Listener(AsyncConsumerRebalanceListener):  # type: ignore[misc]  # it runs in the client's own thread
            async def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
                member.assigned([(tp.topic, tp.partition) for tp in assigned])

            async def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
                if settings["commit_every"] and (upto := member.upto()):
                    try:
                        await member.consumer.commit_async(member.offsets(upto))
                    except Exception as error:
                        member.refused(error)
                    else:
                        member.committed(upto)
                member.gone("revoked", [(tp.topic, tp.partition) for tp in revoked])

            async def on_partitions_lost(self, lost: Collection[Any]) -> None:
                member.lost([(tp.topic, tp.partition) for tp in lost])

        self.consumer = KafkaConsumer(
            bootstrap_servers=settings["servers"],
            group_id=settings["group"],
            auto_offset_reset="earliest",
            enable_auto_commit=settings["auto_commit"],
            session_timeout_ms=settings["session_ms"],
            heartbeat_interval_ms=settings["heartbeat_ms"],
            partition_assignment_strategy=[next(kind for kind in kinds if kind.name == name) for name in settings["strategies"]],
            group_instance_id=settings["instance"],
            isolation_level=settings["isolation"],
        )
        self.consumer.subscribe(settings["topics"], listener=Listener())

    def poll(self) -> Iterator[tuple[str, int, list[int]]]:
        found = self.consumer.poll(timeout_ms=POLL_MS, max_records=self.settings["max_records"])
        for tp, records in found.items():
            yield tp.topic, tp.partition, [number_of(record.value, tp.partition) for record in records]

    def store(self, upto: dict[TP, int]) -> None:
        self.consumer.commit(self.offsets(upto))

    def offsets(self, upto: Mapping[TP, int]) -> dict[Any, Any]:
        from kafka import OffsetAndMetadata, TopicPartition

        return {TopicPartition(*tp): OffsetAndMetadata(number, "", -1) for tp, number in upto.items()}

    def close(self) -> None:
        self.consumer.close(autocommit=self.settings["auto_commit"])


CLIENTS = {"fastfetch": FastFetch, "async": AsyncFastFetch, "confluent": Confluent, "kafka-python": KafkaPython}


def main() -> NoReturn:
    threading.Thread(target=listen, daemon=True).start()
    member = CLIENTS[sys.argv[1]](json.loads(sys.argv[2]))
    tell("started")
    member.run()
    os._exit(0)  # the thread that reads stdin would keep us


if __name__ == "__main__":
    main()
