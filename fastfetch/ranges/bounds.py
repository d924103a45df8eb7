"""Where a plan starts and ends: an offset, a time, or an end of the log; for all partitions or for each."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

from fastfetch.engine.arguments import as_integer
from fastfetch.engine.subscription import EARLIEST, LATEST
from fastfetch.errors import OffsetOutOfRangeError, UsageError
from fastfetch.types import OffsetAndTimestamp, TopicPartition

from .values import Timestamp

__all__ = ["Bounds", "Given", "check_bounds"]

One: TypeAlias = int | str | Timestamp | datetime | timedelta | None
Given: TypeAlias = One | Mapping[Any, One]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Bound(NamedTuple):
    """One end: an offset; or a time in ms since 1970, or EARLIEST or LATEST."""

    offset: int | None = None
    time: int | None = None


class Bounds:
    """One end of all partitions."""

    def __init__(self, what: str, given: Given, default: int, now: datetime) -> None:
        self._what = what
        self._rest = Bound(time=default)
        self._each: dict[Any, Bound] = {}
        if isinstance(given, Mapping):
            self._each = {key: self._bound(value, now) for key, value in given.items() if value is not None}
        elif given is not None:
            self._rest = self._bound(given, now)

    def of(self, tp: TopicPartition) -> Bound:
        return self._each.get(tp) or self._each.get(tp.partition) or self._rest

    def check(self, tps: list[TopicPartition]) -> None:
        known = {*tps, *(tp.partition for tp in tps)}
        if unknown := [key for key in self._each if key not in known]:
            raise UsageError(f"plan: {self._what} names {unknown[0]!r}, which is none of the partitions to be read")

    def times(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        """What has to be looked up by time."""
        return {tp: time for tp in tps if (time := self.of(tp).time) is not None and time >= 0}

    def resolve(self, tp: TopicPartition, begin: int, end: int, found: OffsetAndTimestamp | None) -> int:
        """The offset in a partition whose log goes from `begin` to `end`. `found`: what a look-up by time gave."""
        bound = self.of(tp)
        if bound.offset is None:
            if bound.time == EARLIEST:
                return min(begin, end)
            return end if found is None else min(found.offset, end)
        if self._what == "start" and bound.offset < begin:
            raise OffsetOutOfRangeError(
                f"{tp} starts at {begin}: offsets from {bound.offset} on are gone; start='earliest' takes what is left", code=1
            )
        if self._what == "start" and bound.offset > end and bound is not self._rest:
            raise OffsetOutOfRangeError(
                f"{tp} ends at {end}, and was to be read from {bound.offset} on: it has lost records", code=1
            )
        return min(bound.offset, end)

    def _bound(self, given: Any, now: datetime) -> Bound:
        what = self._what
        if given in ("earliest", "latest"):
            return Bound(time=EARLIEST if given == "earliest" else LATEST)
        if isinstance(given, str):
            try:
                given = datetime.fromisoformat(given)
            except ValueError:
                raise UsageError(f"plan: {what}={given!r} is neither 'earliest', 'latest' nor a date in ISO 8601") from None
        if isinstance(given, timedelta):
            if given < timedelta(0):
                raise UsageError(f"plan: {what}={given!r} lies in the future; a timedelta is how long ago, so leave out the sign")
            given = now - given
        if isinstance(given, datetime):
            if given.utcoffset() is None:
                raise UsageError(
                    f"plan: {what}={given.isoformat()} has no time zone, and could be any of 24 hours; "
                    "write datetime(…, tzinfo=UTC), or .astimezone() for this machine's zone"
                )
            # Rounded up: records have whole milliseconds, and one in the middle of which the time lies is older.
            return Bound(time=max(0, -((_EPOCH - given) // timedelta(milliseconds=1))))
        number = as_integer(given.ms if isinstance(given, Timestamp) else given, 2**63)
        if number is None:
            raise UsageError(
                f"plan: {what}={given!r} is no offset (an int from 0) and no time (a datetime with its zone, Timestamp(ms), "
                "a timedelta ago), nor 'earliest' or 'latest'"
            )
        return Bound(time=number) if isinstance(given, Timestamp) else Bound(offset=number)


def check_bounds(first: Bounds, last: Bounds, tps: list[TopicPartition]) -> None:
    first.check(tps)
    last.check(tps)
    for tp in tps:
        a, b = first.of(tp), last.of(tp)
        if (a.offset is not None and b.offset is not None and a.offset > b.offset) or (
            a.time is not None and b.time is not None and a.time > b.time >= 0
        ):
            raise UsageError(f"plan: {tp} would end before it starts; is start later than end?")
