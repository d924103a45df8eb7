"""End to end: from a real broker on loopback into fastfetch and its peers, as `kfetch bench consume` measures it.

Every reading is a process of its own, and contenders take turns (fastfetch/benchmark/contest.py); a figure is the median of the
ratios of readings of the same round. The warm-up round is short. The slow peers read fewer records of the same topic, and what is
compared is the time, or processor time, of a record.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from bench.measure import Figure, skipped
from bench.topics import TOPICS, Stock
from fastfetch.benchmark.clients import FETCH_BYTES, Job, Turn
from fastfetch.benchmark.contest import ReadingError, absent, alternate, run
from fastfetch.benchmark.contest import take as take_turn

__all__ = ["adapter_figures", "e2e_figures", "partition_figures", "peer_figures"]

ROUNDS = 5
WARM_UP = 10  # the first round reads a tenth
WIRE_SECONDS = 300
TITLES = {
    "none": "JSON ~200 B, uncompressed",
    "lz4": "JSON ~200 B, lz4",
    "zstd": "JSON ~200 B, zstd",
    "lz4-5": "JSON, lz4, 5 a batch",
}
CACHED = "confluent-kafka 300"
# Where objects are compared: of the records, one in so many.
PART = {"confluent-kafka": 5, CACHED: 5, "aiokafka": 10, "kafka-python": 30}

Scale = Callable[[int], int]
Cost = Callable[[Turn], float]


def seconds(reading: Turn) -> float:
    """On the wall, a record."""
    return reading.seconds / reading.records


def cpu(reading: Turn) -> float:
    """Processor seconds a record: all threads of the process, user and system."""
    return reading.cpu / reading.records


@dataclass(frozen=True)
class Contender:
    """A client and what it reads: `records` of a topic, from the beginning of each partition."""

    client: str
    topic: str
    records: int
    called: str = ""

    @property
    def name(self) -> str:
        return self.called or self.client

    def part(self, share: int) -> Contender:
        """The same, reading only so great a part."""
        return replace(self, records=max(1, self.records // share))


def take(stock: Stock, contender: Contender) -> Turn:
    """One reading, in a process of its own. Raises ReadingError."""
    topic = contender.topic
    if contender.client == "wire":
        command = [sys.executable, "-m", "bench.wire", stock.bootstrap, topic, str(contender.records), str(FETCH_BYTES)]
        return run(command, f"wire could not read {topic}", WIRE_SECONDS)
    if why := absent(contender.client):
        raise ReadingError(why)
    return take_turn(contender.client, Job(stock.bootstrap, topic, contender.records, TOPICS[topic].partitions))


@dataclass
class Contest:
    """What came of one. `readings` has one of each client a round; `failed` says why a client could not read."""

    fast: str
    readings: dict[str, list[Turn]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, names: Sequence[str], rounds: int, go: Callable[[str, int], Turn]) -> Contest:
        """Let them have their turns. The first is the one that the figures are about."""
        result = cls(names[0], {name: [] for name in names})
        for turn, name, got in alternate(names, rounds, go):
            if isinstance(got, ReadingError):
                result.failed[name] = str(got)
            elif turn:
                result.readings[name].append(got)
        return result

    def at_least(self, bound: float | None, group: str, name: str, *slow: str, cost: Cost = seconds) -> Figure:
        """How many times cheaper a record is than with the cheapest of the `slow` clients."""
        return self._ratio(group, name, slow, ">=", bound, cost)

    def at_most(self, bound: float | None, group: str, name: str, *slow: str, cost: Cost = seconds) -> Figure:
        """Which part a record costs of what it costs with the `slow` client."""
        return self._ratio(group, name, slow, "<=", bound, cost)

    def _ratio(self, group: str, name: str, slow: Sequence[str], relation: str, bound: float | None, cost: Cost) -> Figure:
        if self.fast in self.failed:  # ours: a figure that was missed, not one that was left out
            missed = math.inf if relation == "<=" else 0.0
            return Figure(group, name, (missed,), "x", relation, bound, self.failed[self.fast])
        there = [client for client in slow if client not in self.failed]
        if not there:
            return skipped(group, name, self.failed[slow[0]])
        ours = map(cost, self.readings[self.fast])
        theirs = (min(map(cost, turn)) for turn in zip(*(self.readings[client] for client in there), strict=True))
        values = tuple(b / a if relation == ">=" else a / b for a, b in zip(ours, theirs, strict=True))
        return Figure(group, name, values, "x", relation, bound, self._detail([self.fast, *there], cost))

    def _detail(self, clients: Sequence[str], cost: Cost) -> str:
        medians = {client: statistics.median(map(cost, self.readings[client])) for client in clients}
        if cost is cpu:
            return ", ".join(f"{client} {median * 1e9:.0f}" for client, median in medians.items()) + " ns"
        return ", ".join(f"{client} {1e-6 / median:.2f}" for client, median in medians.items()) + " Mrec/s"


def contest(stock: Stock, contenders: Sequence[Contender], rounds: int) -> Contest:
    """Let them read in turns. The first is the one that the figures are about."""
    by_name = {contender.name: contender for contender in contenders}

    def go(name: str, turn: int) -> Turn:
        return take(stock, by_name[name] if turn else by_name[name].part(WARM_UP))

    return Contest.of(list(by_name), rounds, go)


def e2e_figures(stock: Stock, scale: Scale) -> list[Figure]:
    """Columns of one partition, and the processor time of the same readings."""
    out = []
    for topic, (confluent, franz) in {"none": (4, 1.3), "lz4": (5, 2), "zstd": (5, 2)}.items():
        records = stock.records[topic]
        contenders = [Contender(client, topic, records) for client in ("fastfetch", "confluent-kafka", "franz-go", "wire")]
        result = contest(stock, [*contenders, Contender(CACHED, topic, records // PART[CACHED])], scale(ROUNDS))
        rate, time = f"poll_blocks, {TITLES[topic]}: over", f"processor time, {TITLES[topic]}: of"
        out += [
            result.at_least(confluent, "e2e", f"{rate} confluent-kafka, consume(10000)", "confluent-kafka"),
            result.at_least(None, "e2e", f"{rate} confluent-kafka, consume(300)", CACHED),
            result.at_least(franz, "e2e", f"{rate} franz-go", "franz-go"),
            result.at_least(0.5 if topic == "none" else None, "e2e", f"{rate} the wire", "wire"),
            result.at_most(0.15, "e2e", f"{time} confluent-kafka, consume(10000)", "confluent-kafka", cost=cpu),
            result.at_most(None, "e2e", f"{time} confluent-kafka, consume(300)", CACHED, cost=cpu),
            result.at_most(0.5, "e2e", f"{time} franz-go", "franz-go", cost=cpu),
        ]
    return out


def peer_figures(stock: Stock, scale: Scale) -> list[Figure]:
    """Objects; batches of five records; and everybody as they come out of the box."""
    out = []
    for topic in ("none", "lz4", "zstd"):
        result = contest(stock, _python_clients(stock, topic, "fastfetch poll"), scale(ROUNDS))
        for peer, bound in {"confluent-kafka": 2.5, CACHED: None, "aiokafka": 3, "kafka-python": 15}.items():
            out.append(result.at_least(bound, "peers", f"poll to Record objects, {TITLES[topic]}: over {peer}", peer))
    small = [Contender(client, "lz4-5", stock.records["lz4-5"]) for client in ("fastfetch", "confluent-kafka", CACHED)]
    result = contest(stock, small, scale(ROUNDS))
    for peer, bound in {"confluent-kafka": 4, CACHED: None}.items():
        out.append(result.at_least(bound, "peers", f"poll_blocks, {TITLES['lz4-5']}: over {peer}", peer))
    for call, mine, bound in (("poll_blocks", "fastfetch defaults", 4), ("poll", "fastfetch poll defaults", None)):
        contenders = _python_clients(stock, "lz4", mine, " defaults")
        result = contest(stock, contenders, scale(ROUNDS))
        peers = [contender.name for contender in contenders[1:]]
        out.append(result.at_least(bound, "peers", f"{call}, {TITLES['lz4']}, all defaults: over the best peer", *peers))
    return out


def _python_clients(stock: Stock, topic: str, mine: str, settings: str = "") -> list[Contender]:
    records = stock.records[topic]
    return [Contender(mine, topic, records), *(Contender(peer + settings, topic, records // part) for peer, part in PART.items())]


def partition_figures(stock: Stock, scale: Scale) -> list[Figure]:
    """The same records in 500 partitions and in one."""
    contenders = [
        Contender("fastfetch", "none-500", stock.records["none-500"], "500 partitions"),
        Contender("fastfetch", "none", stock.records["none"], "one"),
    ]
    result = contest(stock, contenders, scale(ROUNDS))
    title = f"poll_blocks, {TITLES['none']}: 500 partitions over one"
    return [
        result.at_most(1.3, "partitions", f"{title}, time", "one"),
        result.at_most(None, "partitions", f"{title}, processor time", "one", cost=cpu),
    ]


# What stands in for another client: of the topic's records one in so many, and how many times faster it must be.
STAND_INS: dict[str, dict[str, tuple[int, float]]] = {
    "kafka-python": {"kafka-python + fastfetch": (10, 4), "kafka_api": (2, 10)},
    "aiokafka": {"aiokafka + fastfetch": (5, 1.8), "aiokafka_api": (2, 1.8)},
    "confluent-kafka": {"confluent_api": (2, 2)},
    CACHED: {"confluent_api 300": (2, 2)},
}


def adapter_figures(stock: Stock, scale: Scale) -> list[Figure]:
    """Other clients with fastfetch inside, and fastfetch under their names, each over the client itself."""
    out = []
    for topic in ("none", "lz4"):
        records = stock.records[topic]
        for peer, stand_ins in STAND_INS.items():
            contenders = [Contender(stand_in, topic, records // part) for stand_in, (part, _) in stand_ins.items()]
            result = contest(stock, [*contenders, Contender(peer, topic, records // PART[peer])], scale(ROUNDS))
            for stand_in, (_, bound) in stand_ins.items():
                figure = replace(result, fast=stand_in)
                out.append(figure.at_least(bound, "adapters", f"{stand_in}, {TITLES[topic]}: over {peer}", peer))
    return out
