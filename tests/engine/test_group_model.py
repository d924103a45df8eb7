"""Groups of a few whole consumers against simulated brokers: members come, go, die and sleep, the network fails, and what is
promised of reading and committing holds all the same."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable

import pytest

from tests.conftest import ROUNDS
from tests.engine.group_model import STRATEGIES, World
from tests.engine.group_model_broker import NODES

# Steps of each long walk, one for each strategy, in peace and in trouble.
STEPS = int(os.environ.get("FASTFETCH_MODEL_STEPS", 400 * ROUNDS))

Steps = list[tuple[float, Callable[[], object]]]


# Weights such that members keep polling, and trouble is rare enough for groups to come to rest now and then.
def steps_of(world: World) -> Steps:
    draw = world.draw
    some = lambda: draw.randrange(1 << 16)  # noqa: E731
    steps: Steps = [
        (20, lambda: world.poll(some(), draw.choice([0, 0, 50, 500, 3_000]), draw.choice([1, 3, 500]))),
        (10, lambda: world.produce(some(), draw.randint(1, 5))),
        (12, lambda: world.wait(draw.choice([1, 20, 100, 500]))),
        (2, lambda: world.wait(draw.choice([1_000, 3_000]))),
        (1.0, lambda: world.add(draw.choice([0, 0, 1, 2]))),
        (0.4, lambda: world.close(some())),
        (0.3, lambda: world.subscribe(some(), some())),
        (0.2, lambda: world.enforce(some())),
        (0.15, lambda: world.grow(some())),
    ]
    if not world.is_auto:
        steps.append((4, lambda: world.commit(some(), draw.random() < 0.5)))
    if not world.is_calm:
        steps += [
            (2, lambda: world.wait(2_000)),
            (0.5, lambda: world.wait(draw.choice([8_000, 8_000, 15_000, 40_000]))),
            (0.3, lambda: world.kill(some(), draw.random() < 0.5)),
            (0.6, lambda: world.freeze(some())),
            (0.4, lambda: world.nap(some(), draw.choice([500, 5_000, 12_000, 30_000]))),
            (0.4, lambda: world.darken(some(), draw.choice([500, 5_000, 12_000, 30_000]))),
            (0.6, lambda: world.net.cut(some())),
            (0.4, lambda: world.power(draw.randint(1, NODES), draw.random() < 0.6)),
            (0.3, world.move),
        ]
    return steps


def walk(name: str, strategy: str, steps: int, *, is_calm: bool) -> Counter[str]:
    draw = random.Random(name)
    world = World(draw, strategy, is_calm=is_calm)
    try:
        weights, actions = zip(*steps_of(world), strict=True)
        for _ in range(steps):
            world.step(draw.choices(actions, weights)[0])
        world.finish()
    except BaseException as error:
        error.add_note(f"walk({name!r}, {strategy!r}, {steps}, is_calm={is_calm}), step {world.steps}, {world.now} ms")
        raise
    finally:
        world.stop()
    return world.happened


@pytest.mark.timeout(0 if STEPS > 1_000 else 300)
@pytest.mark.parametrize("is_calm", [True, False], ids=["peace", "trouble"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_long_walks(strategy: str, is_calm: bool) -> None:
    """Each stretch ends in peace, with everything read and committed."""
    done, happened = 0, Counter[str]()
    while done < STEPS:
        happened += walk(f"{strategy}.{done}", strategy, 100, is_calm=is_calm)
        done += 100
    assert happened["handed out"] > STEPS / 20, "the walk went nowhere"
