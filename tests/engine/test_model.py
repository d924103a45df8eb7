"""The whole engine against a model cluster: answers in any order, losses, elections, cuts, and whatever a caller does."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.conftest import ROUNDS
from tests.engine.model import World
from tests.engine.model_broker import NONE, Mischief
from tests.engine.model_wires import FETCH_CODES, GROUP_CODES, LOOK_UP_CODES, METADATA_CODES, NODES, PARTITIONS

# Steps of each long walk. FASTFETCH_MODEL_STEPS=125000 makes the eight of them a million.
STEPS = int(os.environ.get("FASTFETCH_MODEL_STEPS", 5_000 * ROUNDS))
WALKS = 8

partition = st.integers(0, PARTITIONS)  # one more than there are
node = st.integers(1, NODES)
number = st.integers(0, 1 << 16)


class Walk(RuleBasedStateMachine):
    """Short walks, which hypothesis shrinks to the few steps that matter."""

    @initialize(seed=number)
    def start(self, seed: int) -> None:
        self.world = World(random.Random(seed))

    @rule(p=partition, how=number)
    def produce(self, p: int, how: int) -> None:
        self.world.produce(p, how)

    @rule(p=partition, node=st.integers(0, NODES), cut=st.sampled_from([0, 0, 1, 3, 30]), then=st.integers(0, 3))
    def elect(self, p: int, node: int, cut: int, then: int) -> None:
        self.world.elect(p, node, cut, then)

    @rule(p=partition, share=st.integers(1, 4))
    def retain(self, p: int, share: int) -> None:
        self.world.retain(p, share)

    @rule()
    def recreate(self) -> None:
        self.world.recreate()

    @rule()
    def add_partition(self) -> None:
        self.world.add_partition()

    @rule(p=partition, node=st.integers(0, NODES), lag=st.integers(0, 3))
    def prefer(self, p: int, node: int, lag: int) -> None:
        self.world.prefer(p, node, lag)

    @rule(node=node, down=st.booleans())
    def power(self, node: int, down: bool) -> None:
        self.world.power(node, down)

    @rule()
    def move_coordinator(self) -> None:
        self.world.move_coordinator()

    @rule(which=number, fails=st.booleans())
    def connect(self, which: int, fails: bool) -> None:
        self.world.connect(which, fails)

    @rule(which=number, processed=st.booleans())
    def lose(self, which: int, processed: bool) -> None:
        lose(self.world, which, processed)

    @rule(which=number, seed=number)
    def process_with_mischief(self, which: int, seed: int) -> None:
        self.world.process(which, mischief(random.Random(seed)))

    @rule(which=number)
    def process(self, which: int) -> None:
        self.world.process(which, NONE)

    @rule(which=number)
    def arrive(self, which: int) -> None:
        self.world.arrive(which)

    @rule(fails=st.booleans())
    def decode(self, fails: bool) -> None:
        self.world.decode(fails)

    @rule()
    def work(self) -> None:
        self.world.work()

    @rule(ms=st.sampled_from([1, 50, 100, 600, 2_000, 31_000]))
    def wait(self, ms: int) -> None:
        self.world.wait(ms)

    @rule(mask=st.integers(0, 31))
    def assign(self, mask: int) -> None:
        self.world.assign(mask)

    @rule(p=partition, where=number, with_epoch=st.booleans())
    def seek(self, p: int, where: int, with_epoch: bool) -> None:
        self.world.seek(p, where, with_epoch)

    @rule(p=partition, end=st.booleans())
    def seek_to(self, p: int, end: bool) -> None:
        self.world.seek_to(p, end)

    @rule(p=partition)
    def pause(self, p: int) -> None:
        self.world.pause(p)

    @rule(
        limit=st.none() | st.integers(1, 20),
        blocks=st.none() | st.integers(1, 4),
        undo=st.booleans(),
        meanwhile=st.integers(0, 4),
    )
    def poll(self, limit: int | None, blocks: int | None, undo: bool, meanwhile: int) -> None:
        self.world.poll(limit, blocks, undo, meanwhile)

    @rule(count=st.integers(0, 10), limit=st.integers(1, 10))
    def iterate(self, count: int, limit: int) -> None:
        self.world.iterate(count, limit)

    @rule(p=partition)
    def skip(self, p: int) -> None:
        self.world.skip(p)

    @rule()
    def commit(self) -> None:
        self.world.commit()

    @rule(p=partition, how=number)
    def ask(self, p: int, how: int) -> None:
        self.world.ask(p, how)

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.finish()


# Few here: the long walks below take the same steps much faster.
Walk.TestCase.settings = settings(max_examples=max(1, int(20 * ROUNDS)), stateful_step_count=60)
TestWalk = Walk.TestCase


def mischief(draw: random.Random) -> Mischief:
    """What may go wrong in one answer; which of it applies depends on the API."""
    codes = draw.choice([FETCH_CODES, LOOK_UP_CODES, GROUP_CODES, METADATA_CODES])
    return Mischief(
        code=draw.choice(codes) if draw.random() < 0.5 else None,
        where=frozenset(draw.sample(range(PARTITIONS), draw.randint(1, PARTITIONS))),
        top=draw.choice([70, 71, 106, -1]) if draw.random() < 0.1 else 0,
        damage=draw.random() < 0.1,
        half=draw.random() < 0.05,
        leave_out=draw.random() < 0.25,
        throttle_ms=draw.choice([5, 300, 2_000]) if draw.random() < 0.1 else 0,
        hint=draw.random() < 0.5,
        no_session=draw.random() < 0.1,
        stale=draw.random() < 0.2,
    )


def lose(world: World, which: int, processed: bool) -> None:
    if world.lines:
        world.lose(sorted(world.lines)[which % len(world.lines)], processed)


def steps_of(world: World, draw: random.Random) -> list[tuple[float, Callable[[], object]]]:
    """Weights such that buffers fill and empty, and trouble is rare enough for anything to happen between."""
    some = lambda: draw.randrange(PARTITIONS)  # noqa: E731
    return [
        (12, lambda: world.produce(some(), draw.randrange(1 << 16))),
        (25, lambda: world.process(draw.randrange(64), NONE)),
        (5, lambda: world.process(draw.randrange(64), mischief(draw))),
        (30, lambda: world.arrive(draw.randrange(64))),
        (20, world.decode),
        (0.3, lambda: world.decode(True)),
        (8, lambda: world.connect(draw.randrange(8), draw.random() < 0.1)),
        (20, lambda: world.poll(draw.choice([None, 1, 3, 8, 20]), draw.choice([None, None, 1, 2]), False)),
        (5, lambda: world.poll(draw.choice([None, 3, 8]), draw.choice([None, 2]), True, draw.choice([0, 0, 1, 4]))),
        (5, lambda: world.iterate(draw.randrange(8), draw.randint(1, 8))),
        (6, lambda: world.wait(draw.choice([1, 20, 100, 100, 600]))),
        (0.3, lambda: world.wait(31_000)),
        (1, world.work),
        (3, lambda: world.seek(draw.randrange(PARTITIONS + 1), draw.randrange(1 << 16), draw.random() < 0.5)),
        (1, lambda: world.seek_to(some(), draw.random() < 0.2)),
        (2, lambda: world.pause(some())),
        (1, lambda: world.assign(draw.choice([0b111, 0b111, 0b111, draw.randrange(32)]))),
        (1, lambda: world.skip(some())),
        (1, world.commit),
        (0.5, lambda: world.ask(draw.randrange(PARTITIONS + 1), draw.randrange(4))),
        (1.5, lambda: world.elect(some(), draw.randint(0, NODES), draw.choice([0, 0, 0, 1, 3, 9, 30]), draw.randrange(4))),
        (0.4, lambda: world.retain(some(), draw.randint(1, 4))),
        (0.1, world.recreate),
        (0.05, world.add_partition),
        (0.7, lambda: world.prefer(some(), draw.randint(0, NODES), draw.randrange(4))),
        (0.3, lambda: world.power(draw.randint(1, NODES), draw.random() < 0.3)),
        (0.2, world.move_coordinator),
        (0.5, lambda: lose(world, draw.randrange(64), draw.random() < 0.5)),
    ]  # fmt: skip


@pytest.mark.timeout(0 if STEPS > 10_000 else 300)
@pytest.mark.parametrize("seed", range(WALKS))
def test_long_walks(seed: int) -> None:
    """The same steps in long runs: what takes many steps to go wrong goes wrong here. Each stretch ends in peace."""
    draw = random.Random(seed)
    done = delivered = 0
    while done < STEPS:
        name = f"{seed}.{done}"
        stretch = random.Random(name)
        world = World(stretch)
        steps = steps_of(world, stretch)
        weights, actions = [weight for weight, _ in steps], [action for _, action in steps]
        try:
            for _ in range(min(STEPS - done, draw.choice([100, 300, 1_000]))):
                stretch.choices(actions, weights)[0]()
                world.check()
                done += 1
            world.finish()
        except Exception as error:
            error.add_note(f"stretch {name!r}, step {world.steps}")
            raise
        delivered += world.delivered
    assert delivered > STEPS / 20, "the walk went nowhere"
