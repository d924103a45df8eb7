"""The engine on its wires to a model cluster: a fake clock, requests and answers under way, and what of both is right.

Each position is predicted from what the caller did and from the answers that arrived; one that moves by anything else fails the
test. So does a request that Kafka would not expect, that comes too soon, or that contradicts what its session says.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from fastfetch.config import ConsumerConfig
from fastfetch.engine.actions import CloseConnection, DecodeRecords, OpenConnection, SendBytes, TrimMemory
from fastfetch.engine.client import Engine
from fastfetch.engine.events import BytesArrived, ConnectionLost, ConnectionOpened, FrameArrived, RecordsDecoded
from fastfetch.engine.subscription import EARLIEST, LATEST, PartitionState, Phase
from fastfetch.errors import CorruptBatchError, is_retriable
from fastfetch.protocol import decode_request, encode_response, tables
from fastfetch.records import decode
from fastfetch.types import TopicPartition
from tests.engine.model_broker import GROUP, NONE, TOPIC, Body, Cluster, Key, Mischief, forgotten_by, partitions_of
from tests.engine.script import Asked

PARTITIONS = 3
NODES = 2
FETCH_CODES = (3, 5, 6, 9, 56, 74, 75, 76, 78, 100, 103, 29, 2, -1, 777)
LOOK_UP_CODES = (3, 5, 6, 9, 29, 56, 74, 75, 78, -1, 777)
GROUP_CODES = (3, 7, 14, 15, 16, 22, 27, 29, 777)
METADATA_CODES = (3, 5, 29, -1, 777)
LEAST_WAIT_MS = 80  # retry_backoff_ms less its jitter
LEAST_RECONNECT_MS = 40

# The leader's epoch, and what the engine keeps of what it asks for: its state of the partition, the ticket, the offset.
Ask = tuple[int, PartitionState | None, int, int]


@dataclass(eq=False)
class Line:
    """One connection at the broker's end: requests not answered yet, answers not arrived yet."""

    conn: int
    host: str
    is_open: bool = False
    asked: deque[Sent] = field(default_factory=deque)
    coming: deque[tuple[Sent, Body]] = field(default_factory=deque)

    def under_way(self) -> list[Sent]:
        return [sent for sent, _ in self.coming] + list(self.asked)


class Sent(Asked):
    """A request, and which look-up of each partition it belongs to."""

    turns: dict[int, int]  # partition: what it expected when this was sent
    leaders: dict[int, int]  # of a fetch: who led, as the client knew
    asks: dict[int, Ask]
    view: dict[Key, Body]  # of a fetch: all that is asked for
    incarnation: int  # of the topic when a broker answered


class Expected:
    """What is known to be right of one assigned partition."""

    def __init__(self, turn: int, *, has_group: bool) -> None:
        self.turn = turn  # grows with all that makes answers under way void
        self.position: int | None = None
        self.wants: int | None = None  # EARLIEST, LATEST; None: the policy's choice
        self.is_committed_read = has_group
        self.paused = False
        self.was_fetched = False
        self.incarnation: int | None = None  # of the topic the position belongs to, once that is known
        self.epoch = -1  # of the last record delivered
        self.epoch_at = -1  # and the offset after it
        self.may_move: set[int | None] = set()  # where a broker's latest answer allows the position to go


class Wires:
    """Settings come from `draw`: walks differ in versions, isolation, policy, group, rack and what happens to bad batches."""

    def __init__(self, draw: random.Random) -> None:
        self.now = 1_000_000
        top = draw.choice([16, 16, 16, 17, 12, 11, 6, 4])
        self.cluster = Cluster(PARTITIONS, NODES, versions={"Fetch": (4, top)}, now=lambda: self.now)
        self.has_group = draw.random() < 0.5
        self.policy = draw.choice(["earliest", "earliest", "latest", "none"])
        self.config = ConsumerConfig.from_settings(
            bootstrap_servers="boot:9000,spare:9000",
            auto_offset_reset=self.policy,
            isolation_level=draw.choice(["read_uncommitted", "read_committed"]),
            on_corrupt=draw.choice(["raise", "skip"]),
            client_rack=draw.choice(["", "here"]),
            max_buffered_bytes=draw.choice([4_000, 15_000, 60_000]),
            max_partition_fetch_bytes=draw.choice([400, 3_000, 1 << 20]),
            fetch_max_bytes=draw.choice([1_500, 20_000, 50 << 20]),
            connections_max_idle_ms=draw.choice([3_000, 540_000]),
            metadata_max_age_ms=draw.choice([5_000, 300_000]),
            **({"group_id": GROUP} if self.has_group else {}),
        )
        self.is_fenced = top >= 9  # older fetches carry no leader epoch, and a log can be cut unseen
        self.committed_only = self.config.isolation_level == "read_committed"
        self.engine = Engine(self.config, seed=draw.randrange(1 << 30))
        self.lines: dict[int, Line] = {}
        self.jobs: deque[DecodeRecords] = deque()
        self.expected: dict[int, Expected] = {}
        self.turn = 0
        self.seen_incarnation = 0
        self.steps = 0
        self.sent: dict[str, int] = {}
        self.views: dict[tuple[str, int], dict[Key, Body]] = {}  # by host and session: what is asked for in it
        self.quiet_until: dict[str, int] = {}  # host: throttled
        # (API, partition, node) -> (ask, until ms): not to be asked again before
        self.refused: dict[tuple[str, int, int], tuple[Ask, int]] = {}
        self.metadata_not_before = 0
        self.newest: dict[tuple[str, int], Sent] = {}  # the newest look-up of a partition, by API
        self.marks: dict[tuple[int, int, int], tuple[int, int, int]] = {}  # (partition, offset, epoch): the record before it
        self.known_epochs: dict[tuple[bytes | None, int], int] = {}
        self.lost_at: dict[str, int] = {}
        self.explained: set[type[Exception] | int] = set()

    # --- the wire -------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until the engine wants nothing more at this moment."""
        for _ in range(100):
            self.engine.pump(self.now)
            self.reconcile()
            actions = self.engine.take_actions()
            if not actions:
                return
            for action in actions:
                self._perform(action)
        raise AssertionError("the engine never comes to rest: a busy loop")

    def handle(self, event: Any) -> None:
        self.engine.handle(event, self.now)
        self.reconcile()

    def _perform(self, action: object) -> None:
        match action:
            case OpenConnection():
                last = self.lost_at.get(action.host)
                if last is not None:
                    assert self.now - last >= LEAST_RECONNECT_MS, f"{action.host} is knocked at without a wait"
                self.lines[action.conn] = Line(action.conn, action.host)
            case SendBytes():
                self._receive(self.lines[action.conn], action.data)
            case CloseConnection():
                self._close(action.conn)
            case DecodeRecords():
                self.jobs.append(action)
            case TrimMemory():
                pass
            case _:
                raise AssertionError(action)

    def _close(self, conn: int) -> None:
        if any(sent.api is tables.METADATA for sent in self.lines.pop(conn).under_way()):
            self.metadata_not_before = self.now + LEAST_WAIT_MS

    def _receive(self, line: Line, data: bytes) -> None:
        assert line.is_open, "bytes were sent over a connection that is not open"
        assert len(data) == 4 + int.from_bytes(data[:4], "big")
        request = decode_request(data[4:])
        node = next((n.node_id for n in self.cluster.nodes.values() if n.host == line.host), 1)
        sent = Sent(line.conn, node, request.api, request.version, request.correlation_id, request.body, self.now)
        name = request.api.name
        self.sent[name] = self.sent.get(name, 0) + 1
        if name != "ApiVersions":
            until = self.quiet_until.get(line.host, 0)
            assert until <= self.now, f"{name} was sent to a throttled broker {until - self.now} ms early"
        if name == "Metadata":
            assert self.now >= self.metadata_not_before, "metadata was asked for again without a wait"
            self.metadata_not_before = 1 << 60  # until it is answered
        sent.asks = {}
        sent.turns = {p: e.turn for p, e in self.expected.items()}
        if name == "Fetch":
            self._check_fetch(line, sent)
        elif name in ("ListOffsets", "OffsetForLeaderEpoch"):
            key = "partition_index" if name == "ListOffsets" else "partition"
            for topic in request.body["topics"]:
                for what in topic["partitions"]:
                    if what.get("timestamp", -1) < 0:  # else a caller's question
                        self._check_wait(what[key], sent)
                        self.newest[name, what[key]] = sent
        elif name == "OffsetCommit":
            for topic in request.body["topics"]:
                for what in topic["partitions"]:
                    assert what["committed_offset"] >= 0
        line.asked.append(sent)

    def _check_fetch(self, line: Line, sent: Sent) -> None:
        body = sent.body
        if is_farewell(sent):
            assert not body["topics"], "a good-bye asks for nothing"
            return
        fetches = [s for other in self.lines.values() if other.host == line.host for s in other.asked if s.api is tables.FETCH]
        fetches += [
            s for other in self.lines.values() if other.host == line.host for s, _ in other.coming if s.api is tables.FETCH
        ]
        assert len(fetches) < 2, f"a third fetch for node {sent.node}"
        assert all(s.conn != sent.conn for s in fetches), "two fetches on one connection"
        engine = self.engine
        if engine.fetcher.used_bytes > self.config.max_buffered_bytes:
            assert not engine.readahead.has_records, "a fetch left over the budget while there is something to hand out"
        sent.leaders = {}
        self._update_view(line, sent)
        for (topic, p), what in sent.view.items():
            state = engine.subscription.find(TopicPartition(TOPIC, p))
            assert state is not None, "a partition that is not assigned is fetched"
            assert not state.paused, "a paused partition is fetched"
            assert state.phase is Phase.FETCHING, "a partition without a position is fetched"
            assert what["fetch_offset"] == state.fetch_offset >= 0, "an offset that is out of date is fetched"
            known = engine.cluster.topics[TOPIC]
            assert topic == (known.topic_id if sent.version >= 13 else TOPIC), "a topic is fetched that is gone"
            if sent.version >= 9:
                assert what["current_leader_epoch"] == known.partitions[p].epoch, "an epoch that is out of date is sent"
            sent.leaders[p] = known.partitions[p].leader
            self.expected[p].was_fetched |= sent.version >= 7 and body["session_epoch"] >= 0
            self._check_wait(p, sent)

    def _update_view(self, line: Line, sent: Sent) -> None:
        """What a broker makes of this request: all it says, or what changes in the session; and nothing is said in vain."""
        body = sent.body
        fresh = partitions_of(body["topics"], sent.version)
        if sent.version < 7 or body["session_epoch"] <= 0:
            assert fresh, "a full request for nothing"
            assert not body.get("forgotten_topics_data"), "a full request forgets nothing"
            sent.view = fresh
        else:
            view = self.views[line.host, body["session_id"]]
            for key, what in fresh.items():
                is_new = key[1] in self.expected and not self.expected[key[1]].was_fetched
                assert is_new or view.get(key) != what, "an incremental request repeats what the broker knows"
            gone = forgotten_by(body, sent.version)
            assert view.keys() >= set(gone), "a partition is forgotten that the session doesn't hold"
            assert not fresh.keys() & set(gone), "a partition is asked for and forgotten at once"
            sent.view = {key: what for key, what in (view | fresh).items() if key not in gone}
            self.views[line.host, body["session_id"]] = sent.view

    def _ask(self, p: int) -> Ask:
        leader = self.engine.cluster.leader(TopicPartition(TOPIC, p))
        state = self.engine.subscription.find(TopicPartition(TOPIC, p))
        epoch = -1 if leader is None else leader.epoch
        return (epoch, None, -1, -1) if state is None else (epoch, state, state.ticket, state.fetch_offset)

    def _check_wait(self, p: int, sent: Sent) -> None:
        """A partition that was refused is left alone for a while, unless its leader's epoch or what is asked for is new."""
        sent.asks[p] = self._ask(p)
        ask, until = self.refused.get((sent.api.name, p, sent.node), (None, 0))
        if ask == sent.asks[p]:
            assert until <= self.now, f"{sent.api.name} asks for partition {p} again {until - self.now} ms early"

    # --- the network's steps --------------------------------------------------------------------------------------------

    def connect(self, which: int, fails: bool) -> None:
        lines = [line for line in self.lines.values() if not line.is_open]
        if not lines:
            return
        line = lines[which % len(lines)]
        node = next((n for n in self.cluster.nodes.values() if n.host == line.host), None)
        if fails or (node is not None and node.is_down):
            self.lose(line.conn)
        else:
            line.is_open = True
            self.handle(ConnectionOpened(line.conn))
            self.run()

    def lose(self, conn: int, processed: bool = False) -> None:
        line = self.lines[conn]
        if processed and line.asked:
            self.cluster.answer(line.asked[0], NONE)  # the broker has done it, and nobody hears of it
        self.lost_at[line.host] = self.now
        self._close(conn)
        self.handle(ConnectionLost(conn, "closed by the other side"))
        self.run()

    def process(self, which: int, mischief: Mischief) -> bool:
        """A broker answers the oldest request of some connection. The answer is on its way then."""
        lines = [line for line in self.lines.values() if line.asked]
        if not lines:
            return False
        line = lines[which % len(lines)]
        sent = line.asked[0]
        node = self.cluster.nodes.get(sent.node)
        if node is not None and node.is_down:
            return False
        body = self.cluster.answer(sent, mischief)
        if body is None:
            return False
        if sent.api is tables.FETCH and not body["error_code"] and sent.version >= 7 and sent.body["session_epoch"] > 0:
            session = self.cluster.nodes[sent.node].sessions.get(sent.body["session_id"])
            assert (session.wanted if session is not None else {}) == sent.view, "broker and client disagree about the session"
        line.asked.popleft()
        sent.incarnation = self.cluster.incarnation
        line.coming.append((sent, body))
        return True

    def arrive(self, which: int) -> bool:
        """The oldest answer on some connection arrives."""
        lines = [line for line in self.lines.values() if line.coming]
        if not lines:
            return False
        line = lines[which % len(lines)]
        sent, body = line.coming.popleft()
        frame = encode_response(sent.api, sent.version, sent.correlation_id, body)[4:]
        if self.steps % 3 == 0:
            self.engine.handle(BytesArrived(line.conn), self.now)
        getattr(self, "_before_" + sent.api.name.lower(), lambda sent, body: None)(sent, body)
        if body.get("throttle_time_ms"):
            self.quiet_until[line.host] = max(self.quiet_until.get(line.host, 0), self.now + body["throttle_time_ms"])
        self.handle(FrameArrived(line.conn, frame))
        for expected in self.expected.values():
            expected.may_move.clear()
        self._check_knowledge()
        self.run()
        return True

    def _check_knowledge(self) -> None:
        """What is known of leaders never goes backwards, in one incarnation of the topic."""
        topic = self.engine.cluster.topics.get(TOPIC)
        if topic is not None:
            now = {(topic.topic_id, p): partition.epoch for p, partition in topic.partitions.items()}
            assert all(epoch >= self.known_epochs.get(key, -1) for key, epoch in now.items()), "an older leader is believed"
            self.known_epochs = now

    def decode(self, fails: bool = False) -> bool:
        """The decoder is done with the oldest records, as far as there is room for them; or it had no memory at all."""
        if not self.jobs:
            return False
        job = self.jobs.popleft()
        assert job.records is not None
        tp, room = job.partition.tp, self.engine.fetcher.room_for(job)
        if fails:
            self.explained.add(MemoryError)
            outcome = RecordsDecoded(job, None, MemoryError())
        elif job.partition.ticket != job.ticket or (room <= 0 and self.engine.readahead.has_records):
            outcome = RecordsDecoded(job, None)
        else:
            result = decode(
                job.records, position=job.start, isolation=self.config.isolation_level, aborted=job.aborted,
                max_bytes=max(0, room - job.wire_bytes), topic=tp.topic, partition=tp.partition,
            )  # fmt: skip
            if result.error is not None:
                self.explained.add(CorruptBatchError)
            outcome = RecordsDecoded(job, result)
        self.handle(outcome)
        self.run()
        return True

    def wait(self, ms: int) -> None:
        """Time passes; the engine is called at every moment it asked for."""
        end = self.now + ms
        for _ in range(1_000):
            self.run()
            wake = self.engine.wake_at_ms
            if wake is None or wake > end:
                break
            self.now = max(wake, self.now + 1)
        else:
            raise AssertionError("the engine asks to be woken without end")
        self.now = end
        self.run()

    # --- what answers allow ---------------------------------------------------------------------------------------------

    def _is_current(self, p: int, sent: Sent) -> Expected | None:
        expected = self.expected.get(p)
        return expected if expected is not None and sent.turns.get(p) == expected.turn else None

    def _refuse(self, p: int, sent: Sent) -> None:
        leader = self.engine.cluster.leader(TopicPartition(TOPIC, p))
        if leader is not None and leader.leader == sent.node and sent.asks.get(p) == self._ask(p):
            self.refused[sent.api.name, p, sent.node] = (sent.asks[p], self.now + LEAST_WAIT_MS)

    def _before_fetch(self, sent: Sent, body: Body) -> None:
        if body["session_id"] and sent.body["session_epoch"] == 0:
            self.views[self.lines[sent.conn].host, body["session_id"]] = sent.view
        for topic in body["responses"]:
            for part in topic["partitions"]:
                p, code = part["partition_index"], part["error_code"]
                if code == 1:
                    expected = self._is_current(p, sent)
                    if expected is not None and self.policy != "none" and sent.leaders.get(p, sent.node) == sent.node:
                        expected.may_move.add(None)
                elif code:
                    self.explained.add(code)
                    self._refuse(p, sent)

    def _before_metadata(self, sent: Sent, body: Body) -> None:
        self.metadata_not_before = self.now + LEAST_WAIT_MS
        for topic in body["topics"]:
            if topic["error_code"]:
                self.explained.add(topic["error_code"])
            elif sent.version >= 10:
                incarnation = int.from_bytes(topic["topic_id"], "big")
                if self.seen_incarnation == 0:  # a client can't know that an offset from elsewhere is of a topic that is gone
                    for expected in self.expected.values():
                        if expected.incarnation not in (None, incarnation):
                            expected.incarnation, expected.epoch = None, -1
                elif self.seen_incarnation != incarnation:
                    for expected in self.expected.values():
                        self._void(expected)
                        expected.may_move.add(None)
                self.seen_incarnation = incarnation

    def _before_findcoordinator(self, sent: Sent, body: Body) -> None:
        found = body["coordinators"][0] if sent.version >= 4 else body
        self.explained.add(found["error_code"])

    def _before_listoffsets(self, sent: Sent, body: Body) -> None:
        asked = sent.partitions()
        for part in body["topics"][0]["partitions"]:
            p, code = part["partition_index"], part["error_code"]
            expected = self._is_current(p, sent)
            if asked[TopicPartition(TOPIC, p)]["timestamp"] >= 0:
                continue
            if self.newest["ListOffsets", p] is not sent:
                continue  # a newer leader was asked meanwhile
            if code:
                self.explained.add(code)
                if is_retriable(code):
                    self._refuse(p, sent)
            elif expected is not None and expected.position is None and not expected.is_committed_read:
                wants = expected.wants if expected.wants is not None else EARLIEST if self.policy == "earliest" else LATEST
                assert asked[TopicPartition(TOPIC, p)]["timestamp"] == wants, "the look-up is another one than was wished for"
                self._settle(expected, part["offset"], sent.incarnation)

    def _before_offsetfetch(self, sent: Sent, body: Body) -> None:
        group = body["groups"][0] if sent.version >= 8 else body
        if group["error_code"]:
            return
        for part in group["topics"][0]["partitions"]:
            p, code = part["partition_index"], part["error_code"]
            expected = self._is_current(p, sent)
            if code:
                self.explained.add(code)
            elif expected is not None and expected.is_committed_read:
                if part["committed_offset"] < 0:
                    self._void(expected)
                    expected.is_committed_read = False
                else:
                    self._settle(expected, part["committed_offset"], None)
                    self._recall(p, expected, part["committed_offset"], part["committed_leader_epoch"])

    def _before_offsetforleaderepoch(self, sent: Sent, body: Body) -> None:
        for topic in body["topics"]:
            for part in topic["partitions"]:
                p, code = part["partition"], part["error_code"]
                expected = self._is_current(p, sent)
                if code:
                    self.explained.add(code)
                    self._refuse(p, sent)
                elif expected is not None and expected.position is not None and self.policy != "none":
                    end = part["end_offset"]
                    if end < expected.position:
                        expected.may_move.add(None if end < 0 else end)

    def _recall(self, p: int, expected: Expected, offset: int, epoch: int) -> None:
        """An offset with an epoch stands for the record before it, which must be in the log that is read from there."""
        mark = self.marks.get((p, offset, epoch))
        if epoch >= 0 and mark is not None and self.seen_incarnation in (0, mark[0]):  # else it is of a topic that is gone
            expected.incarnation, expected.epoch, expected.epoch_at = mark

    def _settle(self, expected: Expected, offset: int, incarnation: int | None) -> None:
        self._void(expected)
        expected.position = offset
        expected.wants = None
        expected.is_committed_read = False
        expected.incarnation = incarnation

    def _void(self, expected: Expected) -> None:
        """What is under way for a partition no longer counts."""
        self.turn += 1
        expected.turn = self.turn
        expected.epoch = expected.epoch_at = -1
        expected.incarnation = None

    def state(self, p: int) -> PartitionState:
        found = self.engine.subscription.find(TopicPartition(TOPIC, p))
        assert found is not None
        return found

    def reconcile(self) -> None:
        """Every position is where it was, or where the latest answer allows it to be."""
        for p, expected in self.expected.items():
            state = self.state(p)
            if state.position == expected.position:
                continue
            assert state.position in expected.may_move, (
                f"the position of {p} went from {expected.position} to {state.position} by itself"
            )
            self._void(expected)
            expected.position = state.position
            expected.may_move.clear()


def is_farewell(sent: Asked) -> bool:
    """The request that ends a session."""
    return sent.api is tables.FETCH and sent.version >= 7 and sent.body["session_id"] != 0 and sent.body["session_epoch"] == -1
