"""What the error codes of the classic group protocol lead to: one table, by request and code."""

from __future__ import annotations

from enum import Enum

__all__ = ["COMMIT_CODES", "REACTIONS", "WHAT", "Reaction"]


class Reaction(Enum):
    """What an error code leads to."""

    RETRY = "the same again after a back-off"
    REDISCOVER = "look for the coordinator, then the same again"
    TAKE_ID = "join again at once with the member id that came with it"
    REJOIN = "join again"
    RESET_GENERATION = "join again with the same member id; what was owned is lost"
    RESET_ID = "join again as a new member; what was owned is lost"


_MOVED = {15: Reaction.REDISCOVER, 16: Reaction.REDISCOVER}

REACTIONS: dict[str, dict[int, Reaction]] = {
    "JoinGroup": {
        14: Reaction.RETRY, **_MOVED, 25: Reaction.RESET_ID, 27: Reaction.RETRY, 79: Reaction.TAKE_ID,
    },
    "SyncGroup": {**_MOVED, 22: Reaction.RESET_GENERATION, 25: Reaction.RESET_ID, 27: Reaction.REJOIN},
    "Heartbeat": {**_MOVED, 22: Reaction.RESET_GENERATION, 25: Reaction.RESET_ID, 27: Reaction.REJOIN},
    "OffsetCommit": {22: Reaction.RESET_GENERATION, 25: Reaction.RESET_ID, 27: Reaction.REJOIN},
}  # fmt: skip
"""By request and error code. A code that is not in here is fatal: raised once, with its number, and nothing more is asked."""

COMMIT_CODES = frozenset({22, 25, 27, 82})  # those that say something about the member

WHAT: dict[int, str] = {
    23: "the other members of the group have no partition_assignment_strategy in common with this one",
    24: "the broker takes this for no group id",
    26: "session_timeout_ms is outside of the broker's group.min.session.timeout.ms and group.max.session.timeout.ms",
    30: "not allowed to use the group",
    81: "the group has as many members as the broker's group.max.size allows",
    82: "another member has taken over group_instance_id; give each running member one of its own",
}
