"""The account that the group tests keep finds what it is there to find. Needs no broker."""

from __future__ import annotations

import pytest

from tests.live.groups import Event, account

HERE = ["t", 0]


def history(*told: tuple[object, ...]) -> list[Event]:
    """From (member, kind, …): records have (first, count), a commit has its number."""
    found = []
    for at, (member, kind, *more) in enumerate(told):
        if kind == "records":
            fields = {"partition": HERE, "first": more[0], "count": more[1]}
        elif kind == "committed":
            fields = {"upto": [[*HERE, more[0]]]}
        else:
            fields = {"partitions": [HERE]}
        found.append(Event(float(at), str(member), str(kind), fields))
    return found


START = [("a", "assigned"), ("a", "records", 0, 10), ("a", "committed", 10), ("a", "records", 10, 5)]


@pytest.mark.parametrize("end", ["revoked", "lost", "killed", "silenced"])
def test_records_since_the_commit_may_come_again(end: str) -> None:
    assert account(history(*START, ("a", end), ("b", "assigned"), ("b", "records", 10, 20))) == 5
    assert account(history(*START, ("a", end), ("b", "assigned"), ("b", "records", 15, 20))) == 0


@pytest.mark.parametrize(
    ("what", "complaint"),
    [
        ([("b", "assigned")], "while a had it"),
        ([("a", "records", 16, 1)], "at 16 after 15"),
        ([("a", "records", 14, 1)], "at 14 after 15"),
        ([("b", "records", 15, 1)], "whose owner was a"),
        ([("b", "committed", 15)], "whose owner was a"),
        ([("b", "revoked")], "did not have it"),
        ([("a", "closed")], "were not revoked"),
        ([("a", "revoked"), ("a", "records", 15, 1)], "whose owner was None"),
        ([("a", "killed"), ("b", "assigned"), ("b", "records", 16, 1)], "others had got to 15"),
        ([("a", "killed"), ("b", "assigned"), ("b", "records", 9, 1)], "committed was 10"),
        ([("a", "silenced"), ("b", "assigned"), ("a", "records", 15, 1)], "whose owner was b"),
        ([("a", "silenced"), ("b", "assigned"), ("a", "committed", 15)], "whose owner was b"),
    ],
)
def test_what_must_not_be(what: list[tuple[object, ...]], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        account(history(*START, *what))
