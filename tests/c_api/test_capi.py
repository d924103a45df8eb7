"""The C interface says what the Python interface says: every function and field of capi.h, through an extension made for it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import fastfetch
from fastfetch.protocol import encode_response, tables
from fastfetch.records import read_fetch_response
from fastfetch.testing import control_batch, encode_batch, message_set

HERE = Path(__file__).parent
SANITIZE = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
ROWS: list[Any] = [
    (b"k", b"v"),
    (None, b"x" * 300, 1000, [("h", b"one"), ("h", None), ("", b""), ("long", b"y" * 200)]),
    (b"", None, 2000, [("only", None)]),
    None,
]


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    target = tmp_path_factory.mktemp("probe") / f"probe{sysconfig.get_config_var('EXT_SUFFIX')}"
    strict = ["-std=gnu99", "-O1", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-field-initializers", "-Werror"]
    flags = [*strict, "-fPIC", "-shared", "-pthread", *(SANITIZE if "FASTFETCH_SANITIZED" in os.environ else [])]
    includes = ["-I", fastfetch.get_include(), "-isystem", sysconfig.get_path("include")]
    compiler = sysconfig.get_config_var("CC").split()
    command = [*compiler, *flags, *includes, str(HERE / "probe.c"), "-o", str(target)]
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}  # a sanitized run is not the compiler's
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    spec = importlib.util.spec_from_file_location("probe", target)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows_of(blocks: list[fastfetch.RecordBlock]) -> list[tuple[Any, ...]]:
    return [
        (r.offset, r.timestamp, r.timestamp_type, r.key, r.value, [(k.encode(), v) for k, v in r.headers], r.leader_epoch)
        for block in blocks
        for r in block
    ]


def expected(data: bytes, **options: Any) -> dict[str, Any]:
    """What the Python interface makes of it, in the C interface's words."""
    d = fastfetch.decode(data, **options)
    said = d.error
    return {
        "rows": rows_of(d.blocks),
        "next_offset": -1 if d.next_offset is None else d.next_offset,
        "consumed": d.consumed,
        "skip_to": said.next_offset if said is not None and said.skip_trusted else -1,
        "error": None if said is None else str(said),
        "count": d.stats.records,
        "batches": d.stats.batches,
        "dropped": d.stats.records_dropped,
        "inflated": d.stats.inflated_bytes,
        "last": d.blocks[-1].next_offset if d.blocks else -1,
    }


def compare(probe: ModuleType, data: bytes, status: str = "ok", c: dict[str, Any] | None = None, **options: Any) -> None:
    """By both functions; `c` is what the options are called there, if it is something else."""
    wanted = expected(data, **options) | {"status": status}
    assert probe.decode(data, **(options if c is None else c)) == wanted
    assert probe.decode(data, **(options if c is None else c), anywhere=True) == wanted


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_columns_and_headers(probe: ModuleType, codec: str) -> None:
    compare(probe, encode_batch(ROWS, base_offset=100, codec=codec, leader_epoch=7) + encode_batch(ROWS, base_offset=200)[:-1])


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_have_no_headers(probe: ModuleType, magic: int) -> None:
    compare(probe, message_set([(b"k", b"v"), (None, None), (b"k", b"")], magic=magic, base_offset=3))


def test_no_bytes(probe: ModuleType) -> None:
    compare(probe, b"")


def test_position_limits_and_threads(probe: ModuleType) -> None:
    one = [encode_batch([b"v" * 100] * 10, base_offset=10 * n, codec="lz4") for n in range(20)]
    data = b"".join(one)
    compare(probe, data, position=148)
    compare(probe, data, max_bytes=1)
    compare(probe, data, status="batch inflates beyond the limit", max_batch_bytes=100)
    large = data * 200  # the offsets go back again and again
    compare(probe, large, threads=2)
    assert expected(large)["dropped"] > 0


def test_aborted_transactions(probe: ModuleType) -> None:
    def sent(producer: int, base: int) -> bytes:
        return encode_batch([b"a", b"b"], base_offset=base, producer_id=producer, producer_epoch=0, transactional=True)

    markers = control_batch("abort", producer_id=8, base_offset=4) + control_batch("commit", producer_id=7, base_offset=5)
    data = sent(7, 0) + sent(8, 2) + markers + sent(8, 6)
    for aborted in ([], [(8, 2)], [(8, 2), (7, 0)]):
        compare(probe, data, isolation="read_committed", aborted=aborted, c={"aborted": aborted})
    compare(probe, data)


def test_damage(probe: ModuleType) -> None:
    """The good records come first, the position stays, and the next batch whose CRC is right is where reading can go on."""
    good, following = encode_batch(ROWS), encode_batch(ROWS, base_offset=8)
    bad = bytearray(encode_batch(ROWS, base_offset=4))
    bad[-1] ^= 1
    data = good + bytes(bad) + following
    compare(probe, data, status="CRC mismatch")
    assert probe.decode(data)["skip_to"] == 8
    compare(probe, data, check_crcs=False, status=probe.decode(data, check_crcs=False)["status"])
    compare(probe, good + b"\0" * 100, status="batch length out of range")


# ------------------------------------------------------------------------------------------------------------------ other ages


def test_options_of_a_caller_that_knew_less(probe: ModuleType) -> None:
    """It was compiled before max_bytes came: what stands behind its struct is not read."""
    data = encode_batch(ROWS) + encode_batch(ROWS, base_offset=4)
    found = probe.decode(data, max_bytes=1, struct_bytes=probe.OLDEST_OPTIONS_BYTES)
    assert found["count"] == 8
    assert probe.decode(data, max_bytes=1)["count"] == 4


def test_options_of_a_caller_that_knows_more(probe: ModuleType) -> None:
    data = encode_batch(ROWS)
    assert probe.decode(data, struct_bytes=probe.OPTIONS_BYTES + 64)["count"] == 4
    with pytest.raises(ValueError, match=f"has an option at byte {probe.OPTIONS_BYTES} that fastfetch's C API 1.1 lacks"):
        probe.decode(data, struct_bytes=probe.OPTIONS_BYTES + 64, tail=1)


@pytest.mark.parametrize("size", [0, 8, 63])
def test_options_that_nobody_filled_in(probe: ModuleType, size: int) -> None:
    with pytest.raises(ValueError, match=f"of {size} bytes; start from FF_DECODE_DEFAULTS"):
        probe.decode(b"", struct_bytes=size)


@pytest.mark.parametrize("options", [{"max_batch_bytes": 0}, {"max_batch_bytes": -1}, {"threads": -1}, {"max_bytes": -1}])
def test_bad_options_are_an_exception_or_a_reason(probe: ModuleType, options: dict[str, int]) -> None:
    [name] = options
    with pytest.raises(ValueError, match=name):
        probe.decode(b"", **options)
    with pytest.raises(RuntimeError, match=f"ValueError: {name} must be"):
        probe.decode(b"", **options, anywhere=True)


@pytest.mark.parametrize(("room", "said"), [(200, "ValueError: threads must be at least 1; got -1"), (6, "Value"), (1, "")])
def test_a_reason_is_cut_to_the_room_there_is(probe: ModuleType, room: int, said: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        probe.decode(b"", threads=-1, anywhere=True, why_bytes=room)
    assert str(caught.value) == f"{said}|#"


@pytest.mark.parametrize("room", [0, -1])
def test_no_room_for_a_reason(probe: ModuleType, room: int) -> None:
    """A buffer of no bytes, and none at all."""
    with pytest.raises(RuntimeError, match=r"#{200}\|#"):
        probe.decode(b"", threads=-1, anywhere=True, why_bytes=room)


# --------------------------------------------------------------------------------------------------------------------- threads


def test_threads_that_python_does_not_know(probe: ModuleType) -> None:
    data = encode_batch([b"v" * 100] * 50, codec="lz4") * 3  # two of the three repeat offsets
    assert probe.threads(data, 4, 50) == [(50 * 50, 50 * 50 * 100, "")] * 4


# ---------------------------------------------------------------------------------------------------------------------- blocks


def test_a_block_of_python_and_its_slices(probe: ModuleType) -> None:
    [block] = fastfetch.decode(encode_batch(ROWS, base_offset=10, codec="zstd")).blocks
    for each in (block, block[1:], block[1:3], block[2:2], block[:], block.detach(), block[1:3].detach()):
        assert probe.block(each) == (rows_of([each]), each.next_offset)


@pytest.mark.parametrize("what", [None, b"", [], object()])
def test_what_is_no_block_is_refused(probe: ModuleType, what: object) -> None:
    with pytest.raises(TypeError, match=r"a fastfetch\.RecordBlock is needed, not " + type(what).__name__):
        probe.block(what)


# -------------------------------------------------------------------------------------------------------------- fetch responses


def response(version: int) -> bytes:
    """All that a response of this version can say."""
    first: dict[str, Any] = {
        "partition_index": 0,
        "high_watermark": 10,
        "last_stable_offset": 9,
        "aborted_transactions": [{"producer_id": 7, "first_offset": 3}, {"producer_id": 8, "first_offset": 4}],
        "records": b"some bytes",
    }
    second: dict[str, Any] = {"partition_index": 1, "error_code": 6, "high_watermark": -1}
    second |= {"records": None, "aborted_transactions": None}
    body: dict[str, Any] = {"throttle_time_ms": 5}
    if version >= 5:
        first["log_start_offset"] = 1
    if version >= 7:
        body["session_id"] = 77
    if version >= 11:
        first["preferred_read_replica"] = 2
    if version >= 12:
        second["diverging_epoch"] = {"epoch": 4, "end_offset": 5}
        second["current_leader"] = {"leader_id": 3, "leader_epoch": 6}
    if version >= 16:
        body["node_endpoints"] = [
            {"node_id": 3, "host": "there", "port": 9092, "rack": None},
            {"node_id": 4, "host": "elsewhere", "port": 9093, "rack": "r"},
        ]
    topic = {"topic_id": bytes(range(16))} if version >= 13 else {"topic": "orders"}
    body["responses"] = [topic | {"partitions": [first, second]}]
    return encode_response(tables.FETCH, version, 42, body)[4:]


@pytest.mark.parametrize("version", range(4, 19))
def test_the_walk_over_a_fetch_response(probe: ModuleType, version: int) -> None:
    frame = response(version)
    head, partitions, endpoints = probe.fetch(frame, version)
    read = read_fetch_response(frame, version)
    assert head == (42, read.throttle_time_ms, read.error_code, read.session_id)
    assert partitions == [
        (
            p.topic or p.topic_id,
            p.partition,
            p.error_code,
            p.high_watermark,
            p.last_stable_offset,
            p.log_start_offset,
            p.aborted,
            p.preferred_read_replica,
            None if p.records is None else bytes(p.records),
            p.diverging_epoch or (-1, -1),
            p.current_leader or (-1, -1),
        )
        for p in read.partitions
    ]
    assert endpoints == read.node_endpoints
    assert len(partitions) == 2
    assert len(endpoints) == (2 if version >= 16 else 0)
    for end in range(len(frame)):
        status, field, at = probe.fetch(frame[:end], version)
        assert status == "malformed fetch response"
        assert field
        assert at <= end


@pytest.mark.parametrize("version", [-1, 3, 19])
def test_a_version_that_is_not_read(probe: ModuleType, version: int) -> None:
    assert probe.fetch(encode_response(tables.FETCH, 4, 42, {})[4:], version)[0] == "unsupported version"
