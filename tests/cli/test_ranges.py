from __future__ import annotations

from datetime import UTC, datetime

import pytest

from fastfetch.cli.ranges import Bound, Range, parse_range

NOW = datetime(2026, 6, 1, 12, 0, 0, 250_000, tzinfo=UTC)
NOW_MS = 1_780_315_200_250
START, END = Bound("start"), Bound("end")


def time(ms: int) -> Bound:
    return Bound("time", ms)


def offset(value: int) -> Bound:
    return Bound("offset", value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("start", Range(START)),
        ("end", Range(END)),
        ("0", Range(offset(0))),
        ("1000", Range(offset(1000))),
        ("-100", Range(Bound("end", -100))),
        ("+7", Range(Bound("start", 7))),
        (":end", Range(START, END)),
        (":10", Range(START, offset(10))),
        ("10:", Range(offset(10))),
        ("10:20", Range(offset(10), offset(20))),
        ("10:10", Range(offset(10), offset(10))),
        ("-100:-50", Range(Bound("end", -100), Bound("end", -50))),
        ("start:end", Range(START, END)),
        ("@1780315200:end", Range(time(1_780_315_200_000), END)),
        ("@1780315200250", Range(time(NOW_MS))),
        ("@2026-06-01T00:00Z", Range(time(1_780_272_000_000))),
        ("@2026-06-01T12:00:00.250Z", Range(time(NOW_MS))),
        ("@2026-06-01 14:00:00+02:00", Range(time(NOW_MS - 250))),
        ("@2026-06-01T12:00:00Z:@2026-06-02T12:00:00Z", Range(time(NOW_MS - 250), time(NOW_MS - 250 + 86_400_000))),
        ("@2026-06-01T12:00:00Z:2026-06-02T12:00Z", Range(time(NOW_MS - 250), time(NOW_MS - 250 + 86_400_000))),
        ("@2026-06-01T12:00Z:@end", Range(time(NOW_MS - 250), END)),
        ("@start:@end", Range(START, END)),
        ("@-1h", Range(time(NOW_MS - 3_600_000))),
        ("@-1d2h3m4s:@now", Range(time(NOW_MS - 93_784_000), time(NOW_MS))),
        ("@-2h:-1h", Range(time(NOW_MS - 7_200_000), time(NOW_MS - 3_600_000))),
        # Ten digits after a time are seconds; other numbers stay offsets.
        ("@-2h:1780315200", Range(time(NOW_MS - 7_200_000), time(1_780_315_200_000))),
        ("@-2h:500", Range(time(NOW_MS - 7_200_000), offset(500))),
        ("1780315200:1780315201", Range(offset(1_780_315_200), offset(1_780_315_201))),
        (" :end ", Range(START, END)),
    ],
)
def test_grammar(text: str, expected: Range) -> None:
    assert parse_range(text, now=NOW) == expected


def test_a_date_without_a_zone_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    import time as clock

    monkeypatch.setenv("TZ", "Etc/GMT-3")
    clock.tzset()
    try:
        assert parse_range("@2026-06-01") == Range(time(1_780_272_000_000 - 3 * 3_600_000))
    finally:
        monkeypatch.undo()
        clock.tzset()


@pytest.mark.parametrize("text", ["", "x", "1:2:3", "@", "@x", "10:x", "--5", "1.5", "@2026-06", "a:b:c", "@12345", "-"])
def test_what_is_no_range_gets_the_grammar_as_an_answer(text: str) -> None:
    with pytest.raises(ValueError, match="no range of offsets"):
        parse_range(text, now=NOW)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("20:10", "ends before it begins"),
        ("-5:-10", "ends before it begins"),
        ("@2026-13-01", "no date"),
        ("10:2026-06-01", "does not begin with one"),
        ("10:-1h", "does not begin with one"),
        ("9223372036854775808", "larger than any offset"),
    ],
)
def test_a_wrong_range_says_why(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_range(text, now=NOW)


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        (START, 50),
        (END, 90),
        (Bound("end", -10), 80),
        (Bound("end", -1000), 50),
        (Bound("start", 5), 55),
        (Bound("start", 1000), 90),
        (offset(7), 7),
        (time(1), 61),
        (time(2), 90),  # nothing so late: the end
    ],
)
def test_bounds_of_a_partition_from_50_to_90(bound: Bound, expected: int) -> None:
    assert bound.resolve(50, 90, {1: 61}.get) == expected
