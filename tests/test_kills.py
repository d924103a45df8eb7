"""What the verdict of bench/kills.py stands on: each thing that a group can do wrong is told from a log that has it."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from bench.account import Account, Event, reckon
from bench.kills import RUNS, Outcome, kill_members, report, scripted_broker
from bench.member import runs_of
from fastfetch import decode
from fastfetch.testing import encode_batch


def account(*lines: tuple[int, str, list[Any]], ends: dict[int, int] | None = None) -> Account:
    """Of lines (who, what, details), a second apart."""
    clock = itertools.count(0, 1_000_000_000)
    return reckon([Event(next(clock), *line) for line in lines], ends or {0: 20})


def test_a_group_that_does_everything_right() -> None:
    good = account(
        (1, "assigned", [0, 1]),
        (1, "got", [[0, 0, 4], [1, 0, 2]]),
        (1, "committed", [[0, 5], [1, 3]]),
        (1, "got", [[0, 5, 9]]),
        (2, "assigned", []),
        (1, "killed", []),
        (-1, "stored", [[0, 5], [1, 3]]),
        (2, "assigned", [0, 1]),
        (2, "got", [[0, 5, 19], [1, 3, 9]]),
        (2, "revoked", [1]),
        (2, "closed", []),
        (-1, "stored", [[0, 20], [1, 10]]),
        ends={0: 20, 1: 10},
    )
    assert not good.faults
    assert (good.kills, good.owners, good.records, good.duplicates, good.uncommitted) == (1, 1, 30, 5, 5)
    assert good.takeover == 3.0


START = ((1, "assigned", [0]), (1, "got", [[0, 0, 9]]))
REST = ((1, "got", [[0, 10, 19]]),)


@pytest.mark.parametrize(
    ("lines", "faults"),
    [
        ((*START, *REST), {}),
        (START, {"lost": 10}),
        (((1, "assigned", [0]), (1, "got", [[0, 3, 19]])), {"lost": 3, "skipped": 3}),
        ((*START, (1, "got", [[0, 12, 19]])), {"lost": 2, "skipped": 2}),
        ((*START, (1, "got", [[0, 12, 19]]), (1, "got", [[0, 10, 11]])), {"skipped": 2, "disordered": 10}),
        ((*START, (1, "got", [[0, 8, 19]])), {"disordered": 2}),
        # Another member has it by now; nobody does; this one never did.
        ((*START, (2, "assigned", [0]), *REST, (2, "got", [[0, 0, 19]])), {"stale": 10}),
        ((*START, (1, "revoked", [0]), *REST), {"stale": 10}),
        ((*START, (2, "got", [[0, 10, 19]])), {"stale": 10}),
        # Before the killed one could have committed it; and what was acknowledged is not there.
        ((*START, (-1, "stored", [[0, 12]]), *REST), {"ahead": 2}),
        ((*START, (1, "committed", [[0, 10]]), (-1, "asked", []), (-1, "stored", [[0, 4]]), *REST), {"behind": 6}),
        ((*START, (-1, "asked", []), (1, "committed", [[0, 10]]), (-1, "stored", [[0, 4]]), *REST), {}),
        # More is repeated than was not committed.
        ((*START, (1, "killed", []), (-1, "stored", [[0, 6]]), (2, "assigned", [0]), (2, "got", [[0, 6, 19]])), {}),
        ((*START, (1, "killed", []), (-1, "stored", [[0, 6]]), (2, "assigned", [0]), (2, "got", [[0, 4, 19]])), {"behind": 2}),
        ((*START, (1, "killed", []), (2, "assigned", [0]), (2, "got", [[0, 12, 19]])), {"lost": 2, "skipped": 2}),
        # Anything is, although the partition was given up in good order.
        ((*START, (1, "revoked", [0]), (2, "assigned", [0]), (2, "got", [[0, 9, 19]])), {"in_order": 1}),
        ((*START, (1, "closed", []), (2, "assigned", [0]), (2, "got", [[0, 9, 19]])), {"in_order": 1}),
        ((*START, (1, "lost", [0]), (2, "assigned", [0]), (2, "got", [[0, 9, 19]])), {}),
    ],
)
def test_what_went_wrong_is_told(lines: tuple[Any, ...], faults: dict[str, int]) -> None:
    assert account(*lines).faults == faults


def test_a_cut_block_is_more_than_one_run() -> None:
    [block] = decode(encode_batch([b"7", b"8", b"11", b"12", b"13", b"2"])).blocks
    assert runs_of(block) == [[0, 7, 8], [0, 11, 13], [0, 2, 2]]


def test_the_table_says_which_run_was_wrong_and_why() -> None:
    first, second, *_ = RUNS.values()
    table = report([Outcome(first, Account(kills=3), [], 1), Outcome(second, Account(skipped=1), ["member 4 said: no"], 1)])
    lines = table.splitlines()
    assert lines[2].endswith("right")
    assert lines[3].endswith("WRONG")
    assert lines[4] == f"{second.name}: member 4 said: no"
    assert len({line.index("right") + 5 for line in lines if "right" in line} | {len(lines[3])}) == 1


@pytest.mark.parametrize("name", ["cooperative-sticky, automatic", "consumer, explicit"])
def test_a_small_run_without_a_real_broker(name: str) -> None:
    with scripted_broker() as source:
        outcome = kill_members(source, RUNS[name], 2, random.Random(7), members=2, rate=300)
    assert outcome.is_right, report([outcome])
    assert outcome.account.kills == 2
    assert outcome.account.duplicates <= outcome.account.uncommitted
    assert outcome.account.records > 0
