"""Where to start and where to stop: the grammar of `-o`, as rpk has it.

    start            from the first offset on (the default)
    end              from the end on: only what arrives from now on
    1000             from offset 1000 on
    -100             from 100 offsets before the end on; +100: from 100 offsets after the start on
    @TIME            from the first record whose timestamp is not below TIME on
    A:B              from A to B, B not included; either may be left out: `:end` is all there is now, `10:` is `10`

TIME is `2026-01-31`, `2026-01-31T12:30[:15[.250]]` with `Z`, `+02:00` or nothing (this machine's zone), milliseconds (13 digits)
or seconds (10 digits) since 1970, or an age such as `-1h30m` (units d h m s). The second `@` may be left out: `@-2h:-1h`,
`@2026-01-01:@end`.

An offset after a transaction marker or in a hole left by compaction is as good as any other: ranges are compared with positions,
not with the records that were seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

__all__ = ["Bound", "Range", "parse_range", "parse_time"]

_TIME = r"""(?:
    \d{4}-\d\d-\d\d (?: [T ] \d\d:\d\d (?: :\d\d (?: \.\d{1,6} )? )? )? (?: Z | [+-]\d\d:?\d\d )?
    | \d{13} | \d{10}
    | - (?: \d+ [dhms] )+
    | start | end | now
)"""
_BOUND = rf"(?: [+-]?\d+ | start | end | @{_TIME} )"
_RANGE = re.compile(rf"(?P<first>{_BOUND})? (?: : (?P<second>{_BOUND} | {_TIME})? )? \Z", re.VERBOSE)
_BARE_TIME = re.compile(rf"{_TIME}\Z", re.VERBOSE)
_AGE = re.compile(r"(\d+)([dhms])")
_UNIT = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
MAX_OFFSET = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a range. `kind` is start, end (with `value` counted from there), offset or time (ms since 1970)."""

    kind: str
    value: int = 0

    def resolve(self, start: int, end: int, at_time: Callable[[int], int | None]) -> int:
        """The offset in a partition whose log goes from `start` to `end`. `at_time(ms)`: first offset at or after a time."""
        if self.kind == "start":
            return min(start + self.value, end)
        if self.kind == "end":
            return max(end + self.value, start)
        if self.kind == "offset":
            return self.value
        found = at_time(self.value)
        return end if found is None else found

    @property
    def needs_time(self) -> bool:
        return self.kind == "time"


@dataclass(frozen=True, slots=True)
class Range:
    """What `-o` says. Without a `stop` the reading goes on when the end is reached, if that was asked for."""

    first: Bound = Bound("start")
    stop: Bound | None = None


def parse_range(text: str, *, now: datetime | None = None) -> Range:
    """A range from its text. Raises ValueError with a sentence."""
    text = text.strip()
    match = _RANGE.match(text)
    if match is None or not text:
        raise ValueError(
            f"{text!r} is no range of offsets. Write start, end, 1000, -100 (before the end), @2026-01-31T12:00Z, @-1h, "
            "or two of them as from:to, such as 10:20, :end, @2026-01-01:@end"
        )
    now = now or datetime.now(UTC)
    first, second = match["first"], match["second"]
    if second is not None and second[0] != "@":
        if first is not None and first[0] == "@" and _BARE_TIME.match(second):
            second = "@" + second
        elif not re.match(r"[+-]?\d+\Z|start\Z|end\Z", second):
            raise ValueError(f"{text!r} ends with a time, but does not begin with one: write @{second}")
    start = Bound("start") if first is None else _bound(first, now, is_stop=False)
    stop = None if second is None else _bound(second, now, is_stop=True)
    if stop is not None and stop.kind == start.kind and stop.value < start.value:
        raise ValueError(f"{text!r} ends before it begins")
    return Range(start, stop)


def parse_time(text: str, *, now: datetime | None = None) -> int:
    """Milliseconds since 1970 from a TIME, with or without an @ before it. Raises ValueError with a sentence."""
    bare = text.strip().removeprefix("@")
    bound = _time(bare, now or datetime.now(UTC)) if _BARE_TIME.match(bare) else None
    if bound is None or bound.kind != "time":
        raise ValueError(
            f"{text!r} is no time. Write 2026-01-31T12:00Z, milliseconds or seconds since 1970, or an age such as -1h30m"
        )
    return bound.value


def _bound(text: str, now: datetime, *, is_stop: bool) -> Bound:
    if text.startswith("@"):
        return _time(text[1:], now)
    if text in ("start", "end"):
        return Bound(text)
    value = int(text)
    if abs(value) > MAX_OFFSET:
        raise ValueError(f"{text} is larger than any offset")
    if text[0] == "-":
        return Bound("end", value)
    if text[0] == "+":
        return Bound("start", value)
    return Bound("offset", value)


def _time(text: str, now: datetime) -> Bound:
    if text in ("start", "end"):
        return Bound(text)
    if text == "now":
        return Bound("time", _ms(now))
    if text[0] == "-":
        try:
            return Bound("time", _ms(now - timedelta(**_sum((_UNIT[unit], int(n)) for n, unit in _AGE.findall(text)))))
        except OverflowError:
            raise ValueError(f"{text} is before all time") from None
    if text.isdigit():
        return Bound("time", int(text) * (1000 if len(text) == 10 else 1))
    return Bound("time", _ms(_date(text)))


def _sum(parts: Iterable[tuple[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for unit, n in parts:
        total[unit] = total.get(unit, 0) + n
    return total


def _date(text: str) -> datetime:
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"@{text} is no date: {error}") from None
    return when if when.tzinfo is not None else when.astimezone()


def _ms(when: datetime) -> int:
    # Integers: a float of seconds is not exact to the millisecond for every date.
    return (when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
