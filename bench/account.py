"""What a group did with numbered records, reckoned from the logs that its members left: nothing lost, nothing skipped, nothing
out of order, and no more repeated than had to be.

Record n of a partition has offset n, from 0 on without holes. Each member writes down what it is assigned, handed and told, each
time before it goes on; the one who kills writes down whom and when, and what the coordinator has stored afterwards. All read one
clock, so the logs can be put together.

    ["assigned", [partition, ...]]    the listener heard it; "revoked" and "lost" likewise
    ["got", [[partition, first, last], ...]]    a poll returned these
    ["committed", [[partition, offset], ...]]    a commit was acknowledged
    ["closed", []]    the member has left in good order
    ["killed", []]    SIGKILL
    ["asked", []]    the coordinator, for what is committed
    ["stored", [[partition, offset], ...]]    it said so; members may have committed more since it was asked
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = ["Account", "Event", "reckon"]


class Event(NamedTuple):
    """`at` is in ns of the clock that all processes share, `who` the member's number."""

    at: int
    who: int
    what: str
    details: list[Any]


@dataclass
class Account:
    """Numbers of records, but for `kills`, `owners` and `takeovers`.

    owners          kills of members that had partitions
    lost            never handed to anybody
    skipped         gone past by the member that had the partition
    disordered      handed to a member again, or after a later one, while it had the partition all the time
    stale           handed to a member when another one had the partition already, or without having been assigned
    ahead           committed before they had been handed to anybody
    duplicates      handed out again by the next owner of a partition
    in_order        of these, after the former owner had given the partition up or closed: none is allowed
    behind          of these, those below the last commit: none is allowed
    uncommitted     handed to the killed and not committed: as many duplicates are allowed
    takeovers       seconds from each kill to the next record of each partition
    """

    kills: int = 0
    owners: int = 0
    records: int = 0
    lost: int = 0
    skipped: int = 0
    disordered: int = 0
    stale: int = 0
    ahead: int = 0
    duplicates: int = 0
    in_order: int = 0
    behind: int = 0
    uncommitted: int = 0
    takeovers: list[float] = field(default_factory=list)

    @property
    def faults(self) -> dict[str, int]:
        """What must be zero and is not."""
        names = ("lost", "skipped", "disordered", "stale", "ahead", "in_order", "behind")
        return {name: count for name in names if (count := getattr(self, name))}

    @property
    def takeover(self) -> float:
        """The median, in seconds; 0 if there was none."""
        return statistics.median(self.takeovers) if self.takeovers else 0.0


@dataclass
class _Partition:
    """One partition as the events go by. `high` is the first record that nobody was handed yet."""

    owner: int | None = None
    next: int | None = None  # what the owner has to be handed next; None: nothing yet
    high: int = 0
    committed: int = 0
    acknowledged: int = 0  # `committed` when the coordinator was asked
    ended: str = ""  # how the last owner lost it
    killed_at: int | None = None
    left: int | None = None  # `high` when its owner was killed, until the coordinator says what is committed
    runs: list[tuple[int, int]] = field(default_factory=list)


def reckon(events: Iterable[Event], ends: Mapping[int, int]) -> Account:
    """The account of one run; `ends` is the number of records by partition."""
    account = Account(records=sum(ends.values()))
    partitions = {number: _Partition() for number in ends}

    def owned(who: int) -> list[_Partition]:
        return [partition for partition in partitions.values() if partition.owner == who]

    for at, who, what, details in sorted(events, key=lambda event: event.at):
        match what:
            case "assigned":
                for number in details:
                    partition = partitions[number]
                    partition.owner, partition.next = who, None
            case "revoked" | "lost":
                for number in details:
                    _end([partitions[number]] if partitions[number].owner == who else [], what)
            case "closed":
                _end(owned(who), what)
            case "killed":
                account.kills += 1
                account.owners += bool(owned(who))
                for partition in owned(who):
                    partition.killed_at, partition.left = at, partition.high
                _end(owned(who), what)
            case "got":
                for number, first, last in details:
                    _got(account, partitions[number], at, who, first, last)
            case "committed":
                for number, offset in details:
                    partitions[number].committed = max(partitions[number].committed, offset)
            case "asked":
                for partition in partitions.values():
                    partition.acknowledged = partition.committed
            case "stored":
                for number, offset in details:
                    partition = partitions[number]
                    account.ahead += max(0, offset - partition.high)
                    account.behind += max(0, partition.acknowledged - offset)  # it has gone back, or was never stored
                    partition.committed = max(partition.committed, offset)
                for partition in partitions.values():
                    if partition.left is not None:
                        account.uncommitted += max(0, partition.left - partition.committed)
                        partition.left = None
            case _:
                raise ValueError(f"an event {what!r} in a log")
    for number, end in ends.items():
        account.lost += end - _covered(partitions[number].runs, end)
    return account


def _end(partitions: list[_Partition], how: str) -> None:
    for partition in partitions:
        partition.owner, partition.ended = None, how


def _got(account: Account, partition: _Partition, at: int, who: int, first: int, last: int) -> None:
    if partition.owner != who:
        account.stale += last - first + 1
    elif partition.next is None:
        again = max(0, partition.high - first)
        account.duplicates += again
        account.skipped += max(0, first - partition.high)
        account.behind += max(0, partition.committed - first)
        if partition.ended in ("revoked", "closed"):
            account.in_order += again
        if partition.killed_at is not None:
            account.takeovers.append((at - partition.killed_at) / 1e9)
            partition.killed_at = None
    else:
        account.skipped += max(0, first - partition.next)
        account.disordered += max(0, partition.next - first)
    if partition.owner == who:
        partition.next = last + 1
    partition.high = max(partition.high, last + 1)
    partition.runs.append((first, last + 1))


def _covered(runs: list[tuple[int, int]], end: int) -> int:
    """How many of the records up to `end` are in any of the runs."""
    reached = covered = 0
    for first, stop in sorted(runs):
        stop = min(stop, end)
        if stop > reached:
            covered += stop - max(first, reached)
            reached = stop
    return covered
