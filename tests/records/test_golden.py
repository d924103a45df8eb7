"""Every line of the Java client's golden data, against the oracle and against fastfetch.

The oracle is held to the same standard: what it is trusted with elsewhere, it has to get right here.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
import reference
from differences import DIFFERENCES, HEADER_KEYS, expected
from golden import View, as_java, java_lines, outcome, views

import fastfetch

LINES = java_lines()
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
LARGE = 1000
FIELDS = """base_offset last_offset next_offset crc max_timestamp count leader_epoch producer_id producer_epoch base_sequence
    transactional control timestamp_type delete_horizon"""
COUNTS = "batches records_dropped null_lengths trailing_bytes"


def test_every_line_is_here():
    valid = [name for name in LINES if not name.startswith("bad/")]
    assert (len(valid), len(LINES) - len(valid)) == (433, 343)


def delivered(decoded: fastfetch.Decoded) -> reference.Expected:
    """Offsets, position and error, quickly: no values are made."""
    got = reference.Expected(next_offset=decoded.next_offset, error=reference.problem_of(decoded.error))
    nothing = (0, 0, None, None, (), -1)
    got.records = [reference.Row(offset, *nothing) for block in decoded.blocks for offset in block.offsets.tolist()]
    return got


def judged(java: View, name: str, got: reference.Expected) -> tuple[View, View]:
    """What is wanted and what came. Where both report an error, which one it is the oracle says, not Java."""
    want, found = expected(name, java), outcome(java, got)
    if java.error is not None and want.error is not None and found.error is not None:
        found = found.gives(found.offsets, found.next_offset, want.error)
    return want, found


@pytest.mark.parametrize("name", LINES)
def test_offsets_positions_and_errors_are_those_of_java_and_all_else_of_the_oracle(name: str):
    line = LINES[name]
    for view in views(line):
        decoded = fastfetch.decode(line["set"], **view.arguments)
        want, found = judged(view, name, delivered(decoded))
        assert found == want
        if line["count"] > LARGE and (view.name != "read" or "records" not in line):
            continue  # the oracle takes a second for each of these
        ours = reference.seen(decoded)
        oracle = reference.decode(line["set"], **view.arguments)
        want, found = judged(view, name, oracle)
        assert found == want, "the oracle is wrong"
        assert ours.error == oracle.error, view.name
        assert (ours.records, ours.next_offset, ours.consumed) == (oracle.records, oracle.next_offset, oracle.consumed), view.name
        counts = (oracle.batches, oracle.dropped, oracle.null_lengths, oracle.trailing)
        assert tuple(getattr(decoded.stats, count) for count in COUNTS.split()) == counts, view.name


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
        assert names, pattern
        every = [(name, view) for name in names for view in views(LINES[name])]
        found = [(view, difference.apply(view)) for name, view in every if difference.applies(name, view)]
        assert any(view != ours for view, ours in found), pattern
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
