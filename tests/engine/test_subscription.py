"""SubscriptionState: one way of choosing at a time; and, as a model, that only hand-outs, seeks and resets move a position."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fastfetch.engine.subscription import EARLIEST, LATEST, Mode, Phase, SubscriptionState
from fastfetch.errors import UsageError
from fastfetch.types import TopicPartition
from tests.conftest import ROUNDS
from tests.engine.script import Asked, Script, batch

P0 = TopicPartition("t", 0)

CHOICES: dict[Mode, Callable[[SubscriptionState], None]] = {
    Mode.ASSIGNED: lambda s: s.assign([P0]),
    Mode.TOPICS: lambda s: s.subscribe(["t"]),
}


@pytest.mark.parametrize("first", CHOICES)
@pytest.mark.parametrize("second", CHOICES)
def test_partitions_are_chosen_in_one_way_at_a_time(first: Mode, second: Mode) -> None:
    state = SubscriptionState(has_group=False)
    CHOICES[first](state)
    if first is second:
        CHOICES[second](state)
        assert state.mode is first
    else:
        with pytest.raises(UsageError, match=r"unsubscribe\(\) first"):
            CHOICES[second](state)
        assert state.mode is first
        state.unsubscribe()
        CHOICES[second](state)
        assert state.mode is second


@pytest.mark.parametrize("leave", [lambda s: s.assign([]), lambda s: s.unsubscribe()])
def test_assigning_nothing_ends_the_mode(leave: Callable[[SubscriptionState], None]) -> None:
    state = SubscriptionState(has_group=False)
    state.assign([P0])
    leave(state)
    assert state.mode is Mode.NONE
    assert not state.partitions()
    state.subscribe(["t"])


def test_the_pattern_mode_is_exclusive_as_well() -> None:
    state = SubscriptionState(has_group=False)
    state.assign([P0])
    with pytest.raises(UsageError):
        state.check_mode(Mode.PATTERN)


def test_a_partition_waits_for_the_committed_offset_only_in_a_group() -> None:
    for has_group, phase in ((True, Phase.AWAITING_COMMITTED), (False, Phase.AWAITING_RESET)):
        state = SubscriptionState(has_group=has_group)
        state.assign([P0])
        assert state.get(P0, "test").phase is phase


def test_positions_leaves_out_what_has_none() -> None:
    state = SubscriptionState(has_group=False)
    state.assign([P0, TopicPartition("t", 1)])
    state.seek(state.get(P0, "test"), 7)
    assert {tp: at.offset for tp, at in state.positions().items()} == {P0: 7}


LOG_END = 400
PARTITIONS = (0, 1, 2)


class Model:
    """Three partitions whose log holds offsets 0..399 in batches of ten, of which the last two were compacted away.

    The engine may be called, answered, refused, disconnected and moved about in any order. At every moment each position is
    what the model says, and what is handed out is the next record of the log, once.
    """

    def __init__(self, offsets: list[int], *, decode_now: bool) -> None:
        self.s = Script(3, nodes=2, max_buffered_bytes=200_000)
        self.s.decode_now = decode_now
        self.expected: dict[int, int | None] = dict(enumerate(offsets))  # partition -> position; None: being looked up
        self.paused: set[int] = set()
        self.resets: dict[int, int] = {}  # partition -> where its reset leads
        self.delivered = 0
        self.s.started(*PARTITIONS)
        for p, offset in enumerate(offsets):
            self.s.engine.seek(TopicPartition("t", p), offset)
        self.s.run()

    # --- the caller

    def assign(self, partitions: set[int]) -> None:
        self.s.engine.assign([TopicPartition("t", p) for p in sorted(partitions)])
        for p in partitions - self.expected.keys():
            self.expected[p] = None
            self.resets[p] = 0
        for p in self.expected.keys() - partitions:
            del self.expected[p]
            self.paused.discard(p)
        self.s.run()

    def seek(self, p: int, offset: int) -> None:
        if p not in self.expected:
            with pytest.raises(UsageError):
                self.s.engine.seek(TopicPartition("t", p), offset)
            return
        self.s.engine.seek(TopicPartition("t", p), offset)
        self.expected[p] = offset
        self.s.run()

    def seek_to(self, p: int, end: bool) -> None:
        if p in self.expected:
            self.s.engine.seek_to([TopicPartition("t", p)], LATEST if end else EARLIEST, "test")
            self.expected[p] = None
            self.resets[p] = LOG_END if end else 0
            self.s.run()

    def pause_or_resume(self, p: int) -> None:
        if p in self.paused:
            self.paused.discard(p)
            self.s.engine.resume([TopicPartition("t", p)])
        elif p in self.expected:
            self.paused.add(p)
            self.s.engine.pause([TopicPartition("t", p)])
        self.s.run()

    def poll(self, limit: int | None, undo: bool) -> None:
        before = dict(self.expected)
        out = self.s.engine.take(limit)
        if limit is not None:
            assert sum(len(block) for block in out.blocks) <= limit
        for block in out.blocks:
            p = block.partition
            assert p not in self.paused
            for offset in block.offsets.tolist():
                position = self.expected[p]
                assert position is not None
                assert offset == position + (2 if position % 10 == 8 else 1 if position % 10 == 9 else 0)
                self.expected[p] = offset + 1
                self.delivered += 1
        for p, expected in self.expected.items():
            position = self.s.position(p)
            if position != expected:  # the end of a batch was passed with its last record: two offsets there hold nothing
                assert expected is not None
                assert position is not None
                assert expected % 10 in (8, 9)
                assert position == expected // 10 * 10 + 10
                self.expected[p] = position
        if undo:
            self.s.engine.readahead.undo(out)
            self.expected = before
        self.s.run()

    # --- the brokers

    def pending(self, api: str) -> list[Asked]:
        """Requests that may be answered now: a broker answers those of one connection in order."""
        first = {asked.conn: asked for asked in reversed(self.s.asked)}
        return [asked for asked in first.values() if asked.api.name == api]

    def answer_fetch(self, which: int, runs: int, code: int) -> None:
        fetches = self.pending("Fetch")
        if not fetches:
            return
        fetch = fetches[which % len(fetches)]
        answers: dict[int, bytes | int | None] = {}
        for tp, what in fetch.partitions().items():
            offset = what["fetch_offset"]
            assert 0 <= offset <= LOG_END, "an offset was made up"
            first = offset // 10 * 10
            records = b"".join(batch(start, 8, last=start + 9) for start in range(first, min(LOG_END, first + 10 * runs), 10))
            answers[tp.partition] = code or records or None
        self.s.fetched(fetch, answers, high=LOG_END)

    def answer_look_up(self, which: int) -> None:
        look_ups = self.pending("ListOffsets")
        if not look_ups:
            return
        asked = look_ups[which % len(look_ups)]
        waiting = {p for p, position in self.expected.items() if position is None}
        self.s.found(asked, {tp.partition: LOG_END if w["timestamp"] == LATEST else 0 for tp, w in asked.partitions().items()})
        for p in waiting:
            position = self.s.position(p)
            if position is not None:
                assert position == self.resets[p], "an answer to an older look-up was taken"
                self.expected[p] = position

    def decode(self) -> None:
        if self.s.jobs:
            self.s.decode()

    def trouble(self, p: int, node: int, lose: int | None) -> None:
        """A leader moves, or goes; a connection is lost."""
        self.s.leaders["t", p] = (node, self.s.leaders["t", p][1] + 1)
        if lose is not None and self.s.opened:
            self.s.lose(sorted(self.s.opened)[lose % len(self.s.opened)])

    # --- always

    def check(self) -> None:
        assert {tp.partition for tp in self.s.engine.subscription.partitions()} == set(self.expected)
        for p, position in self.expected.items():
            assert self.s.position(p) == position
        states = list(self.s.engine.subscription)
        assert self.s.engine.readahead.bytes == sum(state.buffered_bytes for state in states)
        for state in states:
            held = sum(block.nbytes for chunk in state.chunks for block in chunk.blocks)
            assert state.buffered_bytes == held
        fetcher = self.s.engine.fetcher
        assert fetcher._reserved == sum(flight.reserved for flight in fetcher._flights.values())
        assert fetcher._decoding == sum(job.reserved_bytes for job in self.s.jobs)

    def finish(self) -> None:
        """Left in peace, every partition gets to its end."""
        for p in list(self.paused):
            self.pause_or_resume(p)
        for p in PARTITIONS:
            self.s.leaders["t", p] = (1, self.s.leaders["t", p][1] + 1)
        for _ in range(400):
            self.s.advance(100)
            for _ in range(4):
                self.answer_look_up(0)
                self.answer_fetch(0, 50, 0)
                while self.s.jobs:
                    self.s.decode()
            self.poll(None, False)
            self.s.engine.raise_fault()
            self.check()
            if all(position == LOG_END for position in self.expected.values()):
                return
        raise AssertionError(f"stuck: {list(self.s.engine.subscription)}")


class Positions(RuleBasedStateMachine):
    """Short walks, which hypothesis shrinks to the few steps that matter."""

    partition = st.sampled_from(PARTITIONS)

    @initialize(decode_now=st.booleans(), offsets=st.lists(st.integers(0, LOG_END - 1), min_size=3, max_size=3))
    def start(self, decode_now: bool, offsets: list[int]) -> None:
        self.model = Model(offsets, decode_now=decode_now)

    @rule(partitions=st.sets(partition, min_size=1))
    def assign(self, partitions: set[int]) -> None:
        self.model.assign(partitions)

    @rule(p=partition, offset=st.integers(0, LOG_END - 1))
    def seek(self, p: int, offset: int) -> None:
        self.model.seek(p, offset)

    @rule(p=partition, end=st.booleans())
    def seek_to(self, p: int, end: bool) -> None:
        self.model.seek_to(p, end)

    @rule(p=partition)
    def pause_or_resume(self, p: int) -> None:
        self.model.pause_or_resume(p)

    @rule(limit=st.one_of(st.none(), st.integers(1, 40)), undo=st.booleans())
    def poll(self, limit: int | None, undo: bool) -> None:
        self.model.poll(limit, undo)

    @rule(which=st.integers(0, 1), runs=st.integers(1, 6), code=st.sampled_from([0, 0, 0, 6, 3, 75]))
    def answer_fetch(self, which: int, runs: int, code: int) -> None:
        self.model.answer_fetch(which, runs, code)

    @rule(which=st.integers(0, 1))
    def answer_look_up(self, which: int) -> None:
        self.model.answer_look_up(which)

    @rule()
    def decode(self) -> None:
        self.model.decode()

    @rule(p=partition, node=st.sampled_from([-1, 1, 2]), lose=st.one_of(st.none(), st.integers(0, 5)))
    def trouble(self, p: int, node: int, lose: int | None) -> None:
        self.model.trouble(p, node, lose)

    @rule(ms=st.sampled_from([1, 50, 300, 2_000]))
    def wait(self, ms: int) -> None:
        self.model.s.advance(ms)

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "model"):
            self.model.check()

    def teardown(self) -> None:
        if hasattr(self, "model"):
            self.model.finish()


# Few here: the long walks below take the same steps much faster.
Positions.TestCase.settings = settings(max_examples=max(1, int(20 * ROUNDS)))
TestPositions = Positions.TestCase


@pytest.mark.parametrize("seed", range(8))
def test_long_walks(seed: int) -> None:
    """The same steps in long runs, weighted so that buffers fill and empty: what takes many steps to go wrong goes wrong here."""
    draw = random.Random(seed)
    model = Model([draw.randrange(LOG_END) for _ in PARTITIONS], decode_now=seed % 2 == 0)
    steps: list[tuple[int, Callable[[], None]]] = [
        (30, lambda: model.answer_fetch(draw.randrange(2), draw.randint(1, 6), draw.choice([0] * 12 + [6, 3, 75]))),
        (30, lambda: model.poll(draw.choice([None, 1, 5, 8, 20, 40]), draw.random() < 0.3)),
        (20, model.decode),
        (8, lambda: model.answer_look_up(draw.randrange(2))),
        (5, lambda: model.seek(draw.choice(PARTITIONS), draw.randrange(LOG_END))),
        (2, lambda: model.seek_to(draw.choice(PARTITIONS), draw.random() < 0.2)),
        (5, lambda: model.pause_or_resume(draw.choice(PARTITIONS))),
        (1, lambda: model.assign(set(draw.sample(PARTITIONS, draw.randint(1, 3))))),
        (1, lambda: model.trouble(draw.choice(PARTITIONS), draw.choice([-1, 1, 2]), draw.choice([None, *range(6)]))),
        (5, lambda: model.s.advance(draw.choice([1, 50, 300]))),
    ]
    weights, actions = [weight for weight, _ in steps], [action for _, action in steps]
    for _ in range(int(1_000 * ROUNDS)):
        draw.choices(actions, weights)[0]()
        model.check()
    assert model.delivered > 300 * ROUNDS, "the walk went nowhere"
    model.finish()
