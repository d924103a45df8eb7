"""A world of one engine and one model cluster that walks step by step; after every step all that must hold is checked.

Steps take plain numbers, so that hypothesis can shrink a failing walk and a long random one can be replayed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from fastfetch.engine.pending import Pending
from fastfetch.engine.readahead import HandOut
from fastfetch.engine.subscription import EARLIEST, LATEST, Phase
from fastfetch.errors import CorruptBatchError, FastFetchError, UsageError
from fastfetch.protocol import tables
from fastfetch.types import TopicPartition
from tests.engine.model_broker import NONE, TOPIC
from tests.engine.model_log import Batch, Log
from tests.engine.model_wires import NODES, PARTITIONS, Expected, Wires, is_farewell

# Errors whose cause is a state of the log, not a code somebody sent: out of range, a batch too large, truncation, no offset.
EXPLAIN_THEMSELVES = frozenset({1, 10, 3, 100, -1, 74, 35})


class World(Wires):
    """What may happen, to the cluster and at the caller's hand."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.delivered = 0
        self.pending: list[Pending[Any]] = []  # what the caller waits for
        for p in range(PARTITIONS):
            for _ in range(3):
                self.produce(p, draw.randrange(1 << 16))
        self.assign(0b111)

    # --- the cluster's steps --------------------------------------------------------------------------------------------

    def produce(self, p: int, how: int) -> None:
        """A batch of some kind at the end of a partition's log."""
        if p >= len(self.cluster.logs):
            return
        log = self.cluster.logs[p]
        kind, how = how % 16, how // 16
        open_ones = [t for t in log.transactions if t.committed is None]
        if kind < 7:
            log.append(1 + how % 6, codec=("none", "none", "gzip", "lz4")[how % 4])
        elif kind == 7:
            log.append(2 + how % 4, hole=how % 5, tail=how % 3)
        elif kind == 8:
            log.append(0, tail=1 + how % 4)
        elif kind == 9:
            log.append(3, size=1_000 + how % 3_000)
        elif kind < 12:
            producer = next(n for n in range(7, 99) if all(n != t.producer_id for t in open_ones))
            log.begin(producer, 1 + how % 3)
        elif kind < 14 and open_ones:
            log.finish(open_ones[how % len(open_ones)], how % 3 > 0)
        elif kind == 14 and open_ones:
            log.append(2, transaction=open_ones[0])
        elif kind == 15 and how % 4 == 0 and log.batches and not log.batches[-1].is_bad and log.batches[-1].offsets:
            log.damage(log.batches[-1])

    def elect(self, p: int, node: int, cut: int, then: int) -> None:
        """Another leader for a partition, or with node 0 none for now. An unclean one lacks `cut` offsets before the reader, and
        gets `then` other batches."""
        if p >= len(self.cluster.logs):
            return
        if node == 0:
            self.cluster.leaders[p] = -1
            return
        expected, log = self.expected.get(p), self.cluster.logs[p]
        at = log.end if expected is None or expected.position is None else min(log.end, expected.position)
        self.cluster.elect(p, node, at - cut if cut else None)
        for turn in range(then):
            self.produce(p, turn + 16 * then)

    def retain(self, p: int, share: int) -> None:
        if p < len(self.cluster.logs):
            log = self.cluster.logs[p]
            log.retain_from(log.start + (log.end - log.start) * (share % 5) // 4)

    def recreate(self) -> None:
        if self.cluster.by_id:
            self.cluster.recreate()
            for p in range(len(self.cluster.logs)):
                self.produce(p, 2)

    def add_partition(self) -> None:
        if len(self.cluster.logs) < PARTITIONS + 2:
            self.cluster.add_partition()

    def prefer(self, p: int, node: int, lag: int) -> None:
        """The leader sends a client with a rack to a follower, which may be some batches behind; node 0: no longer."""
        if p >= len(self.cluster.logs):
            return
        if node == 0 or node == self.cluster.leaders[p]:
            self.cluster.preferred.pop(p, None)
            self.cluster.behind = {key: end for key, end in self.cluster.behind.items() if key[1] != p}
        else:
            self.cluster.preferred[p] = node
            log = self.cluster.logs[p]
            batches = log.batches[-1 - lag % 4 :]
            self.cluster.behind[node, p] = batches[0].base if lag and batches else log.end

    def power(self, node: int, down: bool) -> None:
        self.cluster.nodes[node].is_down = down
        if down:
            self.cluster.nodes[node].sessions.clear()
            for line in [line for line in self.lines.values() if line.host == f"b{node}"]:
                if line.conn in self.lines:
                    self.lose(line.conn)

    def move_coordinator(self) -> None:
        self.cluster.coordinator = self.cluster.coordinator % NODES + 1

    # --- the caller's steps ---------------------------------------------------------------------------------------------

    def assign(self, mask: int) -> None:
        wanted = [p for p in range(PARTITIONS + 2) if mask >> p & 1]
        self.engine.assign([TopicPartition(TOPIC, p) for p in wanted])
        for p in set(self.expected).difference(wanted):
            del self.expected[p]
        for p in wanted:
            if p not in self.expected:
                self.turn += 1
                self.expected[p] = Expected(self.turn, has_group=self.has_group)
        self.run()

    def seek(self, p: int, where: int, with_epoch: bool) -> None:
        if p not in self.expected:
            _refuses(lambda: self.engine.seek(TopicPartition(TOPIC, p), where))
            return
        log = self.cluster.logs[p] if p < len(self.cluster.logs) else Log()
        expected = self.expected[p]
        offset, epoch = max(0, log.start - 2) + where % (log.end - log.start + 4), None
        written = [batch for batches in log.written.values() for batch in batches]
        if with_epoch and written:  # as it was kept from an earlier reading; the log may have been cut since
            batch = written[-1 - where % min(len(written), 9)]
            offset, epoch = batch.last + 1, batch.epoch
            self.marks[p, offset, epoch] = (log.incarnation, epoch, offset)
        self._settle(expected, offset, None)
        self._recall(p, expected, offset, -1 if epoch is None else epoch)
        self.engine.seek(TopicPartition(TOPIC, p), offset, epoch)
        self.run()

    def seek_to(self, p: int, end: bool) -> None:
        if p not in self.expected:
            _refuses(lambda: self.engine.seek_to([TopicPartition(TOPIC, p)], EARLIEST, "test"))
            return
        expected = self.expected[p]
        self._void(expected)
        expected.position, expected.is_committed_read = None, False
        expected.wants = LATEST if end else EARLIEST
        self.engine.seek_to([TopicPartition(TOPIC, p)], expected.wants, "test")
        self.run()

    def pause(self, p: int) -> None:
        if p not in self.expected:
            _refuses(lambda: self.engine.pause([TopicPartition(TOPIC, p)]))
            return
        expected = self.expected[p]
        expected.paused = not expected.paused
        (self.engine.pause if expected.paused else self.engine.resume)([TopicPartition(TOPIC, p)])
        self.run()

    def poll(self, limit: int | None, blocks: int | None, undo: bool, meanwhile: int = 0) -> None:
        """Take what is there; or, an interrupt, give it back, `meanwhile` events later."""
        before = {p: (e.turn, e.position, e.incarnation, e.epoch, e.epoch_at) for p, e in self.expected.items()}
        out = self.engine.take(limit, blocks)
        assert limit is None or sum(map(len, out.blocks)) <= limit
        assert blocks is None or len(out.blocks) <= blocks
        had = self.delivered
        for block in out.blocks:
            self._deliver(block.partition, block.offsets.tolist(), block.values(), block.next_offset)
        self._pass_gaps()
        if undo:
            for turn in range(meanwhile):
                self.run()
                _ = self.arrive(turn) or self.decode()
            self.engine.readahead.undo(out)
            self.delivered = had
            for p, (turn, *where) in before.items():
                e = self.expected[p]
                if e.turn == turn:  # else the broker's answer has moved it
                    e.position, e.incarnation, e.epoch, e.epoch_at = where
        elif not out.progressed:
            self._hear_fault()
        self.run()

    def iterate(self, count: int, limit: int) -> None:
        """As `for record in consumer` does: peek, then a step a record."""
        found = self.engine.readahead.peek(limit)
        self._pass_gaps()
        if found is None:
            self.run()
            return
        state, chunk, part = found
        row, ticket = chunk.row, state.ticket
        is_whole = row + len(part) == len(chunk.blocks[0])
        records = part.records()
        within = records[:-1] if is_whole else records
        for record in self.engine.readahead.steps(state, ticket, chunk, row, within[:count]):
            self._deliver(record.partition, [record.offset], [record.value], record.offset + 1)
        if is_whole and count >= len(records):
            last = records[-1]
            done = self.engine.readahead.step_last(state, ticket, chunk, row + len(within), HandOut())
            assert done, "nothing happened since the peek"
            self._deliver(last.partition, [last.offset], [last.value], part.next_offset)
        self._pass_gaps()
        self.run()

    def skip(self, p: int) -> None:
        if p not in self.expected:
            return
        state, expected = self.state(p), self.expected[p]
        error = state.error
        if not isinstance(error, CorruptBatchError) or error.next_offset is None or not error.skip_trusted:
            _refuses(lambda: self.engine.skip(state.tp))
            return
        at, waiting = expected.position, bool(state.chunks)
        to = self.engine.skip(state.tp)
        assert at is not None
        assert to >= at
        if not waiting:
            logs = [log for (_, q), log in self.cluster.past.items() if q == p]
            starts = {b.last + 1 for log in logs for bs in log.written.values() for b in bs if b.base <= at <= b.last}
            assert to in starts | {at}, f"a skip led from {at} into the middle of a batch, or too far: {to}"
        self._settle(expected, to, None)
        self.run()

    def commit(self) -> None:
        if not self.has_group:
            return
        offsets = self.engine.subscription.positions()
        for tp, what in offsets.items():
            expected = self.expected[tp.partition]
            assert what.offset == expected.position, "a commit of something else than the position"
            if expected.incarnation is not None and expected.epoch >= 0 and what.leader_epoch is not None:
                mark = (expected.incarnation, expected.epoch, expected.epoch_at)
                self.marks[tp.partition, what.offset, what.leader_epoch] = mark
        self.pending.append(self.engine.commit(offsets, self.now + 5_000, is_async=True).pending)
        self.run()

    def ask(self, p: int, how: int) -> None:
        """A question: what the topic has, what is committed, where a time begins."""
        tp = TopicPartition(TOPIC, p)
        if how % 4 == 0:
            self.pending.append(self.engine.ask_topic(TOPIC))
        elif how % 4 == 1 and self.has_group:
            self.pending.append(self.engine.read_committed_offsets([tp]))
        else:
            self.pending.append(self.engine.offsets_at({tp: how}))  # a time, which no reset asks for
        self.run()

    def _hear_fault(self) -> None:
        try:
            self.engine.raise_fault()
        except MemoryError:
            assert MemoryError in self.explained
        except CorruptBatchError:
            assert CorruptBatchError in self.explained, "no batch was bad"
        except FastFetchError as error:
            code = getattr(error, "code", None)
            if code is not None and code not in self.explained and code not in EXPLAIN_THEMSELVES:
                raise AssertionError("nobody caused this error") from error

    # --- deliveries -----------------------------------------------------------------------------------------------------

    def _deliver(self, p: int, offsets: list[int], values: list[bytes | None], next_offset: int) -> None:
        """These are the very next records of the log, as some history of it has them, and all of them."""
        expected = self.expected.get(p)
        assert expected is not None, "records of a partition that is not assigned"
        assert not expected.paused, "records of a paused partition"
        position = expected.position
        assert position is not None, "records of a partition without a position"
        stamps = [tuple(map(int, (value or b"").split(b"."))) for value in values]
        incarnation, epoch = stamps[-1][0], stamps[-1][1]
        assert [stamp[2] for stamp in stamps] == offsets
        assert all(stamp[0] == incarnation for stamp in stamps)
        assert expected.incarnation in (None, incarnation), "records of another topic under the same name"
        log = self.cluster.past[incarnation, p]
        due = self._due(log, p, epoch, position, offsets[-1] + 1, set(offsets))
        assert due == [(stamp[2], stamp[1]) for stamp in stamps], f"delivered {stamps} of {p} at {position}; due were {due}"
        if expected.epoch >= 0 and self.is_fenced:
            assert log.descends(epoch, expected.epoch, expected.epoch_at), "the log was cut below the position, silently"
        self.delivered += len(offsets)
        expected.incarnation = incarnation
        expected.epoch, expected.epoch_at = epoch, offsets[-1] + 1
        expected.position = offsets[-1] + 1
        if next_offset > expected.position:
            self._pass(p, next_offset)

    def _due(self, log: Log, p: int, epoch: int, first: int, upper: int, got: set[int]) -> list[tuple[int, int]]:
        """(offset, epoch) of the records in [first, upper) that a caller must get."""
        out: list[tuple[int, int]] = []
        for batch in log.history(epoch, first, upper):
            offsets = [o for o in batch.offsets if first <= o < upper]
            if not batch.is_visible(self.committed_only) or (
                self._may_be_left_out(batch, log, p) and not got.intersection(offsets)
            ):
                continue
            out += [(o, batch.epoch) for o in offsets]
        return out

    def _may_be_left_out(self, batch: Batch, log: Log, p: int) -> bool:
        """A damaged batch is gone past if the settings say so."""
        is_bad = batch.is_bad or (log.incarnation, p, batch.base) in self.cluster.damaged_on_the_way
        return is_bad and self.config.on_corrupt == "skip"

    def _pass(self, p: int, to: int) -> None:
        """From the position to `to` there is no record to deliver, in some history of the log that holds what came before."""
        expected = self.expected[p]
        position = expected.position
        assert position is not None
        assert to > position, "a position went back"
        logs = [
            log
            for (incarnation, q), log in self.cluster.past.items()
            if q == p and expected.incarnation in (None, incarnation)
        ]  # fmt: skip
        for log in logs:
            for epoch, written in log.written.items():
                end = written[-1].last + 1 if written else log.histories[epoch][-1][1]
                descends = expected.epoch < 0 or not self.is_fenced or log.descends(epoch, expected.epoch, expected.epoch_at)
                if to <= end and descends and not self._due(log, p, epoch, position, to, set()):
                    expected.position = to
                    return
        raise AssertionError(f"the position of {p} went from {position} to {to} past records")

    def _pass_gaps(self) -> None:
        """Positions went on past batches without records."""
        for p, expected in self.expected.items():
            position = self.state(p).position
            if position != expected.position and position is not None and expected.position is not None and not expected.paused:
                self._pass(p, position)
        self.reconcile()

    # --- always ---------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        engine = self.engine
        self.steps += 1
        assert {tp.partition for tp in engine.subscription.partitions()} == set(self.expected)
        states = list(engine.subscription)
        for state in states:
            assert state.position == self.expected[state.tp.partition].position
            held = sum(block.nbytes for chunk in state.chunks for block in chunk.blocks)
            assert state.buffered_bytes == held
            if state.phase is Phase.FETCHING:
                assert state.position is not None
        assert engine.readahead.bytes == sum(state.buffered_bytes for state in states)
        under_way = sum(flight.reserved for flight in engine.fetcher._flights.values())
        decoding = sum(job.reserved_bytes for job in self.jobs)
        assert engine.fetcher.used_bytes == engine.readahead.bytes + decoding + under_way, "the budget lost count"
        most = sum(max((sum(block.nbytes for block in chunk.blocks) for chunk in s.chunks), default=0) for s in states)
        assert engine.readahead.bytes - most <= self.config.max_buffered_bytes, "more is buffered than an answer too many of each"
        for tp, what in engine.commits.committed.items():
            assert what.offset >= 0, tp

    # --- the end --------------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """Nothing is wrong any more; everybody is at work."""
        cluster = self.cluster
        for node in cluster.nodes.values():
            node.is_down = False
        for p, leader in enumerate(cluster.leaders):
            if leader < 0:
                cluster.elect(p, 1, None)
            for transaction in cluster.logs[p].transactions:
                if transaction.committed is None:
                    cluster.logs[p].finish(transaction, True)
        cluster.behind.clear()
        for p, expected in self.expected.items():
            if expected.paused:
                self.pause(p)

    def finish(self) -> None:
        """Left in peace, every partition gets to its end within seconds, and then the client is quiet."""
        self.heal()
        deadline = self.now + 60_000
        while self.now < deadline:
            self.work()
            self.wait(20)
            self.poll(None, None, False)
            self._cure()
            self.check()
            if self._is_done():
                break
        else:
            raise AssertionError(f"stuck: {list(self.engine.subscription)}, {self.expected_ends()}")
        self._rest()

    def work(self) -> None:
        """Every broker answers whatever is asked; what is decoded is handed out."""
        for _ in range(50):
            busy = False
            while any(not line.is_open for line in self.lines.values()):
                self.connect(0, False)
                busy = True
            for line in list(self.lines.values()):
                which = [other for other in self.lines.values() if other.asked].index(line) if line.asked else None
                busy |= which is not None and self.process(which, NONE)
            while self.arrive(0):
                busy = True
            while self.decode():
                busy = True
            if not busy:
                return
        raise AssertionError("requests and answers go on for ever at one moment")

    def _cure(self) -> None:
        """A caller's way out of errors that stay."""
        for p in list(self.expected):
            state = self.state(p)
            if state.error is None or not state.error_is_sticky or state.chunks:
                continue
            error = state.error
            if isinstance(error, CorruptBatchError) and error.skip_trusted and error.next_offset is not None:
                self.skip(p)
            elif p < len(self.cluster.logs):
                self.seek(p, self.cluster.logs[p].end - max(0, self.cluster.logs[p].start - 2), False)

    def expected_ends(self) -> dict[int, int]:
        return {p: self.cluster.logs[p].end for p in self.expected if p < len(self.cluster.logs)}

    def _is_done(self) -> bool:
        knows_topic = self.seen_incarnation in (0, self.cluster.incarnation)
        return not self.expected or (
            knows_topic and all(self.expected[p].position == end for p, end in self.expected_ends().items())
        )

    def _rest(self) -> None:
        """Nothing to do: a fetch per fetch_max_wait_ms and broker, metadata by age, and nothing else."""
        for _ in range(100):  # commits end by their deadlines
            if all(pending.done for pending in self.pending):
                break
            self.wait(100)
            self.work()
        self.sent.clear()
        for _ in range(20):
            self.wait(500)
            self.work()
        self.check()
        assert all(pending.done for pending in self.pending), "a question was never answered"
        assert self.sent.get("Fetch", 0) <= 2 * NODES * 10_000 // self.config.fetch_max_wait_ms + 2 * NODES, self.sent
        assert self.sent.get("ListOffsets", 0) == 0, self.sent
        unknown = any(p >= len(self.cluster.logs) for p in self.expected)
        assert self.sent.get("Metadata", 0) <= (25 if unknown else 3), self.sent
        self._part()

    def _part(self) -> None:
        """The client closes: sessions that it holds are ended by it."""
        held = {node: session.id for node, session in self.engine.fetcher._sessions.items() if session.id}
        used = {sent.node for line in self.lines.values() for sent in line.asked if sent.api is tables.FETCH}
        self.engine.fetcher.end_sessions(self.now)
        for action in self.engine.take_actions():
            self._perform(action)
        ended = [sent for line in self.lines.values() for sent in line.asked if is_farewell(sent)]
        assert {sent.node for sent in ended} >= used & held.keys(), "a session is left behind at a broker that is connected"
        for sent in ended:
            assert sent.body["session_id"] == held[sent.node]
            self.cluster.answer(sent, NONE)
            assert held[sent.node] not in self.cluster.nodes[sent.node].sessions


def _refuses(call: Callable[[], object]) -> None:
    try:
        call()
    except UsageError:
        return
    raise AssertionError("a call on a partition that is not assigned was taken")
