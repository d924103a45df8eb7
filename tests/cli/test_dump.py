from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastfetch.cli import main
from fastfetch.testing import encode_batch, message_set, patch

from .folders import TIME, batch, orders, transactions, write


def kfetch(*arguments: object) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)))


def lines(*arguments: object, code: int = 0) -> list[dict[str, Any]]:
    done = kfetch("dump", *arguments, "--json")
    assert (done.exit_code, done.stderr) == (code, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def of_type(found: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [line for line in found if line["type"] == name]


BATCHES = [batch(o, codec=codec) for o, codec in zip(range(0, 100, 10), ["none", "lz4"] * 5, strict=True)]
STARTS = [sum(map(len, BATCHES[:i])) for i in range(11)]


def damaged(tmp_path: Path, at: int, new: bytes, *, cut: int | None = None) -> Path:
    data = bytearray(b"".join(BATCHES))
    data[at : at + len(new)] = new
    return write(tmp_path / "t-0", {0: [bytes(data[:cut])]})


def test_headers_of_all_segments(tmp_path: Path) -> None:
    folder = orders(tmp_path)
    done = kfetch("dump", folder)
    assert done.exit_code == 0
    assert "2 segments" in done.stderr
    assert "20 batches (4 gzip, 4 lz4, 4 none, 4 snappy, 4 zstd), 200 records, offsets 0 to 200" in done.stderr
    headings = [line for line in done.stdout.splitlines() if line.startswith(str(folder))]
    assert [heading.split()[0] for heading in headings] == [str(folder / f"{base:020d}.log") for base in (0, 100)]
    first = done.stdout.splitlines()[2].split()
    assert first[0] == "0"
    assert first[2:5] == ["0..9", "10", "none"]
    assert kfetch("dump", folder, "-q").stderr == ""


def test_json_lines_have_every_field(tmp_path: Path) -> None:
    found = lines(orders(tmp_path))
    assert [line["type"] for line in found] == ["segment", *["batch"] * 10, "segment", *["batch"] * 10, "summary"]
    size = len(batch(10, codec="gzip"))
    assert found[2] == {
        "type": "batch",
        "byte_pos": len(batch(0)),
        "size": size,
        "magic": 2,
        "codec": "gzip",
        "base_offset": 10,
        "last_offset": 19,
        "next_offset": 20,
        "count": 10,
        "crc": f"{struct.unpack('>I', batch(10, codec='gzip')[17:21])[0]:08x}",
        "crc_ok": True,
        "timestamp_type": 0,
        "base_timestamp": TIME + 10_000,
        "max_timestamp": TIME + 19_000,
        "leader_epoch": 4,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "transactional": False,
        "control": False,
        "delete_horizon": None,
        "control_type": None,
    }
    summary = found[-1]
    assert (summary["records"], summary["first_offset"], summary["next_offset"], summary["corrupt"]) == (200, 0, 200, 0)


def test_records(tmp_path: Path) -> None:
    folder = orders(tmp_path)
    records = of_type(lines(folder, "--records"), "record")
    assert [(r["offset"], r["value"]) for r in records] == [(o, f"value {o}") for o in range(200)]
    text = kfetch("dump", folder, "--records").stdout
    assert 'offset 42  2023-11-14T22:14:02.000Z  key "k42"  value "value 42"  headers h="x" h=null' in text


def test_records_stay_on_their_line(tmp_path: Path) -> None:
    rows = [(None, b"a\nb\x1b[31m\xff", TIME, [(b"\xff\n", None)])]
    folder = write(tmp_path / "t-0", {0: [encode_batch(rows)]})
    text = kfetch("dump", folder, "--records").stdout
    assert len(text.splitlines()) == 4
    assert "\x1b" not in text


def test_transactions_and_old_formats(tmp_path: Path) -> None:
    found = of_type(lines(transactions(tmp_path)), "batch")
    assert [(b["transactional"], b["control"], b["control_type"]) for b in found] == [
        (True, False, None),
        (True, True, "commit"),
        (True, False, None),
        (True, True, "abort"),
        (True, False, None),
    ]
    assert "control: abort" in kfetch("dump", tmp_path / "tx-0").stdout
    old = message_set([b"a", b"b"], magic=0) + message_set([b"c", b"d"], magic=1, codec="gzip", base_offset=2)
    folder = write(tmp_path / "old-0", {0: [old]})
    assert [(b["magic"], b["codec"], b["count"]) for b in of_type(lines(folder), "batch")] == [
        (0, "none", None),
        (0, "none", None),
        (1, "gzip", None),
    ]
    assert "format 1" in kfetch("dump", folder).stdout
    # Compressed, only reading says how many there are.
    assert lines(folder, "--verify")[-1]["records"] == 4


@pytest.mark.parametrize("place", [17, 21, 30, 60, 65])
def test_a_wrong_crc_is_passed_to_the_next_batch(tmp_path: Path, place: int) -> None:
    at = STARTS[4] + place
    folder = damaged(tmp_path, at, bytes([b"".join(BATCHES)[at] ^ 1]))
    found = lines(folder, code=3)
    [corrupt] = of_type(found, "corrupt")
    path = str(folder / f"{0:020d}.log")
    assert (corrupt["path"], corrupt["byte_pos"], corrupt["offset"], corrupt["kind"]) == (path, STARTS[4], 40, "crc")
    assert (corrupt["resumed_at"], corrupt["resumed_offset"], corrupt["lost_bytes"]) == (STARTS[5], 50, len(BATCHES[4]))
    assert [b["base_offset"] for b in of_type(found, "batch")] == [0, 10, 20, 30, 50, 60, 70, 80, 90]
    assert (found[-1]["corrupt"], found[-1]["lost_bytes"]) == (1, len(BATCHES[4]))
    text = kfetch("dump", folder)
    assert text.exit_code == 3
    assert f"CORRUPT {path} at byte {STARTS[4]}, offset 40 (crc)" in text.stdout
    assert f"goes on at byte {STARTS[5]}, offset 50" in text.stdout
    assert "1 corrupt places" in text.stderr


@pytest.mark.parametrize("length", [5, -1, 100, 100_000, (1 << 31) - 1])
def test_where_a_length_is_wrong_the_next_batch_is_searched(tmp_path: Path, length: int) -> None:
    """Also where it reaches past the end of the file: batches that follow say that none is being written there."""
    found = lines(damaged(tmp_path, STARTS[4] + 8, struct.pack(">i", length)), code=3)
    [corrupt] = of_type(found, "corrupt")
    assert (corrupt["byte_pos"], corrupt["resumed_at"], corrupt["resumed_offset"]) == (STARTS[4], STARTS[5], 50)
    assert [b["base_offset"] for b in of_type(found, "batch")] == [0, 10, 20, 30, 50, 60, 70, 80, 90]


@pytest.mark.parametrize(
    ("what", "new"),
    [
        ("magic", b"\x07"),
        ("negative magic", b"\xff"),
        ("text", b"nothing of a batch is left here " * 30),
        ("zeros", bytes(700)),
        ("ones", b"\xff" * 700),
    ],
)
def test_where_a_header_is_destroyed_the_next_batch_is_searched(tmp_path: Path, what: str, new: bytes) -> None:
    at = STARTS[4] + (16 if "magic" in what else 0)
    found = lines(damaged(tmp_path, at, new), code=3)
    after = next(i for i, start in enumerate(STARTS) if start >= at + len(new))
    [corrupt] = of_type(found, "corrupt")
    assert corrupt["byte_pos"] == STARTS[4]
    assert (corrupt["resumed_at"], corrupt["resumed_offset"]) == (STARTS[after], 10 * after)
    assert [b["base_offset"] for b in of_type(found, "batch")] == [10 * i for i in range(10) if not 4 <= i < after]


def test_damage_to_the_end_of_a_segment_leaves_the_next_segment(tmp_path: Path) -> None:
    data = b"".join(BATCHES[:8]) + b"rubbish " * 200
    folder = write(tmp_path / "t-0", {0: [data], 100: [batch(100)]})
    found = lines(folder, code=3)
    [corrupt] = of_type(found, "corrupt")
    assert (corrupt["byte_pos"], corrupt["resumed_at"], corrupt["lost_bytes"]) == (STARTS[8], None, 1600)
    assert of_type(found, "batch")[-1]["base_offset"] == 100
    assert "nothing that can be read behind it in this segment" in kfetch("dump", folder).stdout


def test_several_places(tmp_path: Path) -> None:
    data = bytearray(b"".join(BATCHES))
    for i in (0, 3, 9):
        data[STARTS[i] + 70] ^= 1
    found = lines(write(tmp_path / "t-0", {0: [bytes(data)]}), code=3)
    assert [c["byte_pos"] for c in of_type(found, "corrupt")] == [STARTS[0], STARTS[3], STARTS[9]]
    assert [c["resumed_at"] for c in of_type(found, "corrupt")] == [STARTS[1], STARTS[4], None]
    assert len(of_type(found, "batch")) == 7


def test_verify_finds_what_a_right_crc_hides(tmp_path: Path) -> None:
    wrong = patch(batch(10, codec="lz4"), count=11)
    folder = write(tmp_path / "t-0", {0: [batch(0), wrong, batch(20)]})
    assert len(of_type(lines(folder), "batch")) == 3
    found = lines(folder, "--verify", code=3)
    [corrupt] = of_type(found, "corrupt")
    assert (corrupt["offset"], corrupt["kind"], corrupt["resumed_offset"]) == (10, "count", 20)
    # The records before the bad one are listed.
    assert len(of_type(lines(folder, "--records", code=3), "record")) == 30


def test_the_tail_of_the_last_segment_is_no_damage(tmp_path: Path) -> None:
    cut = damaged(tmp_path, 0, b"", cut=STARTS[9] + 30)
    [tail] = of_type(lines(cut), "tail")
    assert (tail["at"], tail["size"], tail["what"]) == (STARTS[9], 30, "part of a batch: still being written, or cut")
    zeros = write(tmp_path / "z-0", {0: [batch(0), bytes(5000)]})
    [tail] = of_type(lines(zeros), "tail")
    assert (tail["at"], tail["size"], tail["what"]) == (len(batch(0)), 5000, "preallocated, zeros")


def test_a_cut_segment_before_the_last_is_damage(tmp_path: Path) -> None:
    folder = write(tmp_path / "t-0", {0: [batch(0), batch(10)[:40]], 20: [batch(20)]})
    found = lines(folder, code=3)
    [corrupt] = of_type(found, "corrupt")
    assert (corrupt["byte_pos"], corrupt["kind"], corrupt["resumed_offset"]) == (len(batch(0)), "length", 20)
    assert [b["base_offset"] for b in of_type(found, "batch")] == [0, 20]


@pytest.mark.usefixtures("small_windows")
def test_windows_do_not_show(tmp_path: Path) -> None:
    """The same listing when every few batches are another window, also behind damage."""
    for at, new in ((STARTS[4] + 70, b"\0\1\2"), (STARTS[2] + 8, struct.pack(">i", 5)), (STARTS[3], b"\xff" * 700)):
        folder = damaged(tmp_path, at, new)
        found = lines(folder, code=3)
        listed = [b["byte_pos"] for b in of_type(found, "batch")]
        hit = {i for i in range(10) if STARTS[i] < at + len(new) and STARTS[i + 1] > at}
        assert listed == [STARTS[i] for i in range(10) if i not in hit]


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastfetch import segments
    from fastfetch.cli import dump

    for module in (segments, dump):
        monkeypatch.setattr(module, "WINDOW", 1 << 10)
    monkeypatch.setattr(segments.Cursor.window, "__defaults__", (1 << 10,))
    monkeypatch.setattr(segments, "MAP_FROM", 1 << 10)


def test_a_stray_file_is_called_that(tmp_path: Path) -> None:
    path = tmp_path / "notes.log"
    path.write_text("no batches here\n" * 50)
    done = kfetch("dump", path)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "not a Kafka log segment" in done.stderr


def test_a_damaged_start_under_another_name_is_still_searched(tmp_path: Path) -> None:
    path = tmp_path / "rescued.bin"
    path.write_bytes(b"\xff" * 100 + batch(50))
    found = lines(path, code=3)
    assert [b["byte_pos"] for b in of_type(found, "batch")] == [100]


def test_several_paths(tmp_path: Path) -> None:
    folder, other = orders(tmp_path), transactions(tmp_path)
    found = lines(*sorted(folder.glob("*.log")), other)
    assert [Path(line["path"]).parent.name for line in of_type(found, "segment")] == ["orders-3", "orders-3", "tx-0"]
    assert (found[-1]["segments"], found[-1]["batches"]) == (3, 25)
    # The search in one does not ask for the offsets of the other.
    damage = write(tmp_path / "bad-0", {0: [batch(0), b"\xff" * 100, batch(10)]})
    found = lines(folder, damage, code=3)
    assert of_type(found, "batch")[-1]["base_offset"] == 10


def test_segments_that_overlap_are_listed_whole(tmp_path: Path) -> None:
    """As a crash in the middle of compaction leaves them; reading delivers each offset once."""
    folder = write(tmp_path / "t-0", {0: [batch(o) for o in range(0, 100, 10)], 50: [batch(o) for o in range(50, 150, 10)]})
    listed = [b["base_offset"] for b in of_type(lines(folder), "batch")]
    assert listed == [*range(0, 100, 10), *range(50, 150, 10)]
    done = CliRunner().invoke(main, ["cat", str(folder), "-f", r"%o\n"])
    assert [int(line) for line in done.stdout.splitlines()] == list(range(150))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    at=st.integers(0, STARTS[10] - 1),
    new=st.binary(min_size=1, max_size=300) | st.integers(1, 300).map(bytes),
    tail=st.booleans(),
)
def test_every_batch_that_is_whole_is_listed_whatever_happened_to_another(
    tmp_path: Path, at: int, new: bytes, tail: bool
) -> None:
    data = bytearray(b"".join(BATCHES))
    new = new[: len(data) - at]
    data[at : at + len(new)] = new
    folder = write(tmp_path / "t-0", {0: [bytes(data) + bytes(1000 * tail)]})
    done = kfetch("dump", folder, "--json")
    assert done.exit_code in (0, 3)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    untouched = {STARTS[i] for i in range(10) if data[STARTS[i] : STARTS[i + 1]] == BATCHES[i]}
    assert untouched <= {b["byte_pos"] for b in of_type(found, "batch")}
    assert found[-1]["type"] == "summary"
