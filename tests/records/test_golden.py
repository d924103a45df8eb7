"""Every line of the Java client's golden data, against the oracle and against fastfetch.

The oracle is held to the same standard: what it is trusted with elsewhere, it has to get right here.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import pytest
import reference
from differences import DIFFERENCES, HEADER_KEYS, expected
from golden import as_java, java_lines, outcome, views

import fastfetch

LINES = java_lines()
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
FIELDS = """base_offset last_offset next_offset crc max_timestamp count leader_epoch producer_id producer_epoch base_sequence
    transactional control timestamp_type delete_horizon"""


@cache
def oracle(name: str, **arguments: Any) -> reference.Expected:
    return reference.decode(LINES[name]["set"], **arguments)


def compare(name: str, decoded: Any) -> None:
    line = LINES[name]
    wrong = []
    for view in views(line):
        got, want = outcome(view, decoded(name, **view.arguments)), expected(name, view)
        same = (got.offsets, got.next_offset) == (want.offsets, want.next_offset) and (got.error is None) == (want.error is None)
        listed = view.error is not None or want.error is None or got.error == want.error
        if not same or not listed:
            wrong.append(f"{view.name}\n  Java      {view}\n  expected  {want}\n  got       {got}")
    assert not wrong, "\n".join(wrong)


def test_every_line_is_here():
    valid = [name for name in LINES if not name.startswith("bad/")]
    assert (len(valid), len(LINES) - len(valid)) == (433, 343)


@pytest.mark.parametrize("name", LINES)
def test_the_oracle_agrees_with_java(name: str):
    compare(name, oracle)


@pytest.mark.parametrize("name", LINES)
def test_offsets_positions_and_errors_are_those_of_java(name: str):
    compare(name, lambda name, **arguments: reference.seen(fastfetch.decode(LINES[name]["set"], **arguments)))


@pytest.mark.parametrize("name", [name for name, line in LINES.items() if "records" in line])
def test_records_are_those_of_java(name: str):
    """All fields. How many there are is the business of the test above."""
    theirs = {record[0]: record for record in reversed(LINES[name]["records"])}  # of two with one offset the first is delivered
    for row in reference.seen(fastfetch.decode(LINES[name]["set"])).records:
        ours = as_java(row)
        record = theirs.get(row.offset, ours)  # past an error of Java's there is nothing to compare with
        if name in HEADER_KEYS:
            record = [*record[:5], ours[5]]
        assert ours == record


@pytest.mark.parametrize("name", LINES)
def test_the_oracle_agrees_in_every_field_and_every_detail_of_the_error(name: str):
    for view in views(LINES[name]):
        ours = reference.seen(fastfetch.decode(LINES[name]["set"], **view.arguments))
        theirs = oracle(name, **view.arguments)
        assert ours.error == theirs.error, view.name
        assert (ours.records, ours.next_offset, ours.consumed) == (theirs.records, theirs.next_offset, theirs.consumed), view.name


@pytest.mark.parametrize("name", [name for name, line in LINES.items() if "batches" in line])
def test_the_oracle_reads_batch_headers_as_java_does(name: str):
    line = LINES[name]
    for entry, java in zip(reference.entries(line["set"]), line["batches"], strict=True):
        assert (len(entry.raw), entry.magic) == (java["size"], java["magic"])
        header = entry.header()
        assert header.attributes & 7 == CODECS[java["codec"]]
        if isinstance(header, reference.Header):
            ours = (
                header.base_offset, header.last_offset, header.last_offset + 1, header.crc, header.max_timestamp, header.count,
                header.leader_epoch, header.producer_id, header.producer_epoch, header.base_sequence, header.transactional,
                header.control, int(header.log_append_time), header.base_timestamp if header.attributes & 64 else None,
            )  # fmt: skip
            assert ours == tuple(java[field] for field in FIELDS.split())


@pytest.mark.parametrize("name", [name for name, line in LINES.items() if line.get("batches")])
def test_leader_epochs_are_those_of_the_batches(name: str):
    line = LINES[name]
    for block in fastfetch.decode(line["set"]).blocks:
        for offset, epoch in zip(block.offsets.tolist(), block.leader_epochs.tolist(), strict=True):
            of_batch = [b["leader_epoch"] for b in line["batches"] if b["base_offset"] <= offset <= b["last_offset"]]
            assert epoch in of_batch or not of_batch


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda d: f"{d.names[0]} {d.at}")
def test_no_listed_difference_is_stale(difference):
    """Each pattern still finds a line, and each outcome given differs from Java's somewhere."""
    assert difference.why
    changed = set()
    for pattern in difference.names:
        names = [name for name in LINES if fnmatchcase(name, pattern)]
        all_views = [(name, view) for name in names for view in views(LINES[name])]
        found = [(view, difference.apply(view)) for name, view in all_views if difference.applies(name, view)]
        assert names, pattern
        assert any(view != ours for view, ours in found) or (difference.at == "read" and not found), pattern
        for view, ours in found:
            changed |= {field for field in ("offsets", "next_offset", "error") if getattr(view, field) != getattr(ours, field)}
    assert changed


@pytest.mark.parametrize("name", HEADER_KEYS)
def test_header_keys_that_are_no_text_are_delivered_without_loss(name: str):
    (row,) = reference.seen(fastfetch.decode(LINES[name]["set"])).records
    java = bytes.fromhex(LINES[name]["records"][0][5][0][0]).decode()
    ours = row.headers[0][0]
    assert "\N{REPLACEMENT CHARACTER}" in java  # or the entry is stale
    with pytest.raises(UnicodeDecodeError):
        ours.decode()
