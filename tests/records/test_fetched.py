"""The walk over fetch responses, against the table codec: the same answer for good bytes, the same refusal of bad ones."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import struct
import sys
import tracemalloc
from typing import Any

import pytest

from fastfetch.errors import ProtocolError, UnsupportedVersionError
from fastfetch.protocol import ZERO_UUID, decode_response, encode_response, tables
from fastfetch.records.fetched import FetchedPartition, FetchResponse, read_fetch_response

ROUNDS = float(os.environ.get("FASTFETCH_ROUNDS", "1"))
VERSIONS = range(tables.FETCH.min_version, tables.FETCH.max_version + 1)
every_version = pytest.mark.parametrize("version", VERSIONS)


def number(rng: random.Random, bits: int) -> int:
    edges = (0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)))
    return rng.choice(edges) if rng.random() < 0.3 else rng.getrandbits(bits) - 2 ** (bits - 1)


def partition_body(rng: random.Random, version: int) -> dict[str, Any]:
    body: dict[str, Any] = {
        "partition_index": number(rng, 32),
        "error_code": number(rng, 16),
        "high_watermark": number(rng, 64),
        "last_stable_offset": number(rng, 64),
        "records": rng.choice((None, b"", rng.randbytes(rng.choice((1, 60, 126, 127, 128, 300))))),
        "aborted_transactions": rng.choice((None, [], [{"producer_id": number(rng, 64), "first_offset": 7}] * rng.randint(1, 9))),
    }
    if version >= 5:
        body["log_start_offset"] = number(rng, 64)
    if version >= 11:
        body["preferred_read_replica"] = number(rng, 32)
    if version >= 12:
        if rng.random() < 0.4:
            body["diverging_epoch"] = {"epoch": number(rng, 32), "end_offset": number(rng, 64)}
        if rng.random() < 0.4:
            body["current_leader"] = {"leader_id": number(rng, 32), "leader_epoch": number(rng, 32)}
        if rng.random() < 0.2:
            body["snapshot_id"] = {"epoch": 3, "end_offset": number(rng, 64)}
    return body


def response_body(rng: random.Random, version: int, *, topics: int | None = None) -> dict[str, Any]:
    body: dict[str, Any] = {"throttle_time_ms": number(rng, 32), "responses": []}
    if version >= 7:
        body |= {"error_code": number(rng, 16), "session_id": number(rng, 32)}
    for t in range(rng.randint(0, 3) if topics is None else topics):
        partitions = [partition_body(rng, version) for _ in range(rng.randint(0, 3) if topics is None else 2)]
        name = {"topic_id": rng.randbytes(16)} if version >= 13 else {"topic": rng.choice(("", f"orders-{t}", "ä" * 80))}
        body["responses"].append(name | {"partitions": partitions})
    if version >= 16 and rng.random() < 0.7:
        racks = (None, "", "rack-1")
        body["node_endpoints"] = [
            {"node_id": node, "host": f"host-{node}", "port": number(rng, 32), "rack": rng.choice(racks)}
            for node in range(rng.randint(0, 3))
        ]
    return body


def from_tables(version: int, frame: bytes) -> tuple[Any, ...]:
    """What the table codec reads, put in the shape of `shown`."""
    correlation_id, body = decode_response(tables.FETCH, version, frame)
    partitions = []
    for topic in body["responses"]:
        for p in topic["partitions"]:
            aborted = p["aborted_transactions"]
            diverging, leader = p["diverging_epoch"], p["current_leader"]
            partitions.append(
                (
                    topic["topic"] if version <= 12 else None,
                    topic["topic_id"] if version >= 13 else None,
                    p["partition_index"],
                    p["error_code"],
                    p["high_watermark"],
                    p["last_stable_offset"],
                    p["log_start_offset"],
                    None if aborted is None else [(a["producer_id"], a["first_offset"]) for a in aborted],
                    p["preferred_read_replica"],
                    None if p["records"] is None else bytes(p["records"]),
                    (diverging["epoch"], diverging["end_offset"]) if diverging["epoch"] >= 0 else None,
                    (leader["leader_id"], leader["leader_epoch"])
                    if leader["leader_id"] >= 0 and leader["leader_epoch"] >= 0
                    else None,
                )
            )
    endpoints = [(e["node_id"], e["host"], e["port"], e["rack"]) for e in body["node_endpoints"]]
    return correlation_id, body["throttle_time_ms"], body["error_code"], body["session_id"], partitions, endpoints


def shown(response: FetchResponse) -> tuple[Any, ...]:
    partitions = [
        (
            p.topic,
            p.topic_id,
            p.partition,
            p.error_code,
            p.high_watermark,
            p.last_stable_offset,
            p.log_start_offset,
            p.aborted,
            p.preferred_read_replica,
            None if p.records is None else bytes(p.records),
            p.diverging_epoch,
            p.current_leader,
        )
        for p in response.partitions
    ]
    head = (response.correlation_id, response.throttle_time_ms, response.error_code, response.session_id)
    return (*head, partitions, response.node_endpoints)


def frame_of(version: int, body: dict[str, Any], correlation_id: int = 1) -> bytes:
    return encode_response(tables.FETCH, version, correlation_id, body)[4:]


PAGE = mmap.PAGESIZE


class Guard:
    """Bytes that end where a page begins that may not be touched: the slightest over-read is a fault, not luck."""

    def __init__(self, pages: int = 16) -> None:
        self.map = mmap.mmap(-1, (pages + 1) * PAGE)
        self.end = pages * PAGE
        self.keep = ctypes.c_char.from_buffer(self.map)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(ctypes.c_void_p(ctypes.addressof(self.keep) + self.end), ctypes.c_size_t(PAGE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")

    def __call__(self, data: bytes) -> memoryview:
        assert len(data) <= self.end
        self.map[self.end - len(data) : self.end] = data
        return memoryview(self.map)[self.end - len(data) : self.end]


@pytest.fixture(scope="module")
def guard() -> Guard:
    return Guard()


@every_version
def test_random_responses_are_read_as_the_tables_read_them(version: int, guard: Guard) -> None:
    rng = random.Random(version)
    for _ in range(max(1, int(100 * ROUNDS))):
        frame = frame_of(version, response_body(rng, version), number(rng, 32))
        assert shown(read_fetch_response(guard(frame), version)) == from_tables(version, frame)


@every_version
def test_every_truncation_is_a_protocol_error(version: int, guard: Guard) -> None:
    rng = random.Random(f"cut {version}")
    for _ in range(4):
        frame = frame_of(version, response_body(rng, version, topics=2))
        assert len(read_fetch_response(frame, version).partitions) == 4
        for cut in range(len(frame)):
            with pytest.raises(ProtocolError, match=f"^Fetch v{version} response: "):
                read_fetch_response(guard(frame[:cut]), version)


@every_version
def test_changed_bytes_are_judged_as_the_tables_judge_them(version: int, guard: Guard) -> None:
    """Accepted by both with one meaning, or refused by both; each input lies against a guard page."""
    rng = random.Random(f"mutate {version}")
    lies = [bytes.fromhex(lie) for lie in ("ffffffff0f", "7fffffff", "ffffffff", "fffffffe", "8080808010", "00", "ffff", "02")]
    refused = accepted = 0
    for turn in range(max(20, int(1500 * ROUNDS))):
        if turn % 50 == 0:
            frame = frame_of(version, response_body(rng, version, topics=rng.randint(1, 3)))
        data = bytearray(frame)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            at = rng.randrange(len(data))
            lie = rng.choice(lies) if rng.random() < 0.6 else bytes([rng.randrange(256)])
            if rng.random() < 0.2:
                del data[at : at + rng.randint(1, 4)]
            else:
                data[at : at + len(lie)] = lie
        mutated = bytes(data)
        try:
            expected = from_tables(version, mutated)
        except ProtocolError:
            refused += 1
            with pytest.raises(ProtocolError):
                read_fetch_response(guard(mutated), version)
        else:
            accepted += 1
            assert shown(read_fetch_response(guard(mutated), version)) == expected
    assert refused > accepted // 10 > 0  # neither side of the comparison is idle


@every_version
def test_noise_is_judged_as_the_tables_judge_it(version: int, guard: Guard) -> None:
    rng = random.Random(f"noise {version}")
    for _ in range(max(20, int(300 * ROUNDS))):
        data = rng.randbytes(rng.randrange(80)) if rng.random() < 0.5 else bytes(rng.randrange(80))
        try:
            expected = from_tables(version, data)
        except ProtocolError:
            with pytest.raises(ProtocolError):
                read_fetch_response(guard(data), version)
        else:
            assert shown(read_fetch_response(guard(data), version)) == expected


@every_version
def test_records_are_views_of_the_frame(version: int) -> None:
    payload = random.Random(0).randbytes(5000)
    partitions = [{"partition_index": 0, "records": payload}, {"partition_index": 1, "records": b""}, {"partition_index": 2}]
    frame = bytearray(frame_of(version, {"responses": [{"partitions": partitions}]}))
    full, empty, null = read_fetch_response(frame, version).partitions
    assert full.records is not None
    assert full.records.obj is frame
    assert full.records == payload
    frame[frame.index(payload)] ^= 0xFF
    assert full.records[0] == payload[0] ^ 0xFF
    assert empty.records == b""
    assert null.records is None


def test_a_frame_may_be_any_contiguous_bytes() -> None:
    frame = frame_of(12, {"responses": [{"topic": "t", "partitions": [{"records": b"abc"}]}]})
    wide = bytearray(frame + b"\0" * (-len(frame) % 4))
    for form in (frame, bytearray(frame), memoryview(frame), memoryview(b"x" + frame)[1:], memoryview(wide).cast("i")):
        records = read_fetch_response(form, 12).partitions[0].records
        assert records == b"abc"
    with pytest.raises(TypeError):
        read_fetch_response(memoryview(frame + frame)[::2], 12)
    with pytest.raises(TypeError):
        read_fetch_response("text", 12)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [4, 11, 12, 17])
def test_a_response_of_five_hundred_partitions(version: int) -> None:
    rng = random.Random(version)
    topics = []
    for t in range(5):
        partitions = [{"partition_index": p, "high_watermark": t * 100 + p, "records": rng.randbytes(200)} for p in range(100)]
        name = {"topic_id": bytes([t + 1] * 16)} if version >= 13 else {"topic": f"topic-{t}"}
        topics.append(name | {"partitions": partitions})
    frame = frame_of(version, {"responses": topics})
    response = read_fetch_response(frame, version)
    assert shown(response) == from_tables(version, frame)
    assert [p.high_watermark for p in response.partitions] == list(range(500))
    # One name a topic, not one a partition.
    assert len({id(p.topic_id if version >= 13 else p.topic) for p in response.partitions}) == 5


@pytest.mark.parametrize(
    ("version", "at", "lie", "where"),
    [
        (11, 14, struct.pack(">i", 2**31 - 1), "responses"),
        (11, 14, struct.pack(">i", -1), "responses"),
        (12, 15, b"\xff\xff\xff\xff\x0f", "responses"),
        (12, 15, b"\0", "responses"),
        (12, 4, b"\xff", "header's tagged fields"),
        (17, 15, b"\x80\x80\x80\x80\x08", "responses"),
        (11, 18, struct.pack(">h", -2), r"responses\[0\].topic"),
        (11, 21, struct.pack(">i", 2**31 - 1), r"responses\[0\].partitions"),
        (11, 21, struct.pack(">i", -1), r"responses\[0\].partitions"),
        (11, 55, struct.pack(">i", 2**31 - 1), r"responses\[0\].partitions\[0\].aborted_transactions of topic 't'"),
        (11, 55, struct.pack(">i", -2), r"responses\[0\].partitions\[0\].aborted_transactions"),
        (11, 63, struct.pack(">i", 2**31 - 1), r"responses\[0\].partitions\[0\].records"),
        (11, 63, struct.pack(">i", -2), r"responses\[0\].partitions\[0\].records"),
    ],
)
def test_a_count_that_claims_the_world_is_refused_before_allocating(version: int, at: int, lie: bytes, where: str) -> None:
    body = {"responses": [{"topic": "t"} | {"partitions": [{"records": b"abc", "aborted_transactions": []}]}]}
    frame = bytearray(frame_of(version, body))
    frame[at : at + (1 if version >= 12 else len(lie))] = lie
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match=rf"^Fetch v{version} response: {where}.*\(at byte {at}\)"):
            read_fetch_response(bytes(frame), version)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_memory_is_proportional_to_the_frame() -> None:
    """The densest response there is: nothing but empty partitions."""
    frame = frame_of(12, {"responses": [{"topic": "t", "partitions": [{}] * 20_000}]})
    tracemalloc.start()
    try:
        response = read_fetch_response(frame, 12)
        assert tracemalloc.get_traced_memory()[1] < 12 * len(frame)
    finally:
        tracemalloc.stop()
    assert len(response.partitions) == 20_000


def test_unknown_tags_are_harmless_wherever_they_stand() -> None:
    leader = struct.pack(">ii", 3, 9) + b"\x01\x2a\x02zz"  # a tag of its own inside
    partition = struct.pack(">ihqqq", 5, 74, 10, 9, 0) + b"\0" + struct.pack(">i", -1) + b"\x03ab"
    partition += b"\x03" + b"\x01" + bytes([len(leader)]) + leader + b"\x09\x00" + b"\xff\x7f\x03abc"
    endpoint = struct.pack(">i", 3) + b"\x02h" + struct.pack(">i", 9092) + b"\0" + b"\x01\x05\x01x"
    endpoints = b"\x02" + endpoint
    frame = struct.pack(">i", 1) + b"\x01\x00\x02hh" + struct.pack(">ihi", 0, 0, 0)
    frame += b"\x02" + b"i" * 16 + b"\x02" + partition + b"\x01\x07\x01t"
    frame += b"\x02" + b"\x00" + bytes([len(endpoints)]) + endpoints + b"\x63\x04rest"
    response = read_fetch_response(frame, 16)
    assert shown(response) == from_tables(16, frame)
    assert response.partitions[0].current_leader == (3, 9)
    assert response.node_endpoints == [(3, "h", 9092, None)]
    # Node endpoints came with v16; in v15 tag 0 of the response is one that nobody knows.
    assert read_fetch_response(frame, 15).node_endpoints == []


@pytest.mark.parametrize("tag", ["partition", "response"])
def test_a_known_tag_has_to_fill_its_size(tag: str) -> None:
    partition = {"current_leader": {"leader_id": 1, "leader_epoch": 7}} if tag == "partition" else {}
    endpoints = [{"node_id": 1, "host": "h", "port": 5, "rack": "r"}] if tag == "response" else []
    frame = frame_of(16, {"responses": [{"partitions": [partition]}], "node_endpoints": endpoints})
    content = b"\x02" + struct.pack(">i", 1) + b"\x02h" + struct.pack(">i", 5) + b"\x02r\0"
    if tag == "partition":
        content = struct.pack(">ii", 1, 7) + b"\0"
    at = frame.index(content) - 1
    assert frame[at] == len(content)
    for size in range(len(content) + 4):
        changed = frame[:at] + bytes([size]) + frame[at + 1 :] + bytes(8)
        if size == len(content):
            assert shown(read_fetch_response(changed, 16)) == from_tables(16, changed)
            continue
        for read in (read_fetch_response, lambda data, version: decode_response(tables.FETCH, version, data)):
            with pytest.raises(ProtocolError):
                read(changed, 16)


def test_a_tag_at_its_default_is_none() -> None:
    leader = {"leader_id": -1, "leader_epoch": 5}
    body = {"responses": [{"topic": "t", "partitions": [{"current_leader": leader}, {"diverging_epoch": {"end_offset": 7}}]}]}
    first, second = read_fetch_response(frame_of(12, body), 12).partitions
    assert (first.current_leader, second.diverging_epoch) == (None, None)


def test_bytes_after_the_response_are_ignored() -> None:
    frame = frame_of(12, {"responses": []})
    assert read_fetch_response(frame + b"xyz", 12).partitions == []


def test_a_topic_name_that_is_not_utf8_is_kept() -> None:
    frame = frame_of(11, {"responses": [{"topic": "\udcff", "partitions": [{}]}]})
    assert read_fetch_response(frame, 11).partitions[0].topic == "\udcff"


@pytest.mark.parametrize("version", [-1, 0, 3, 19, 32767])
def test_other_versions_are_refused(version: int) -> None:
    with pytest.raises(UnsupportedVersionError, match=rf"Fetch \(api key 1\) v{version} .* 4 to 18"):
        read_fetch_response(b"", version)


def test_the_reader_and_the_table_speak_the_same_versions() -> None:
    assert (VERSIONS.start, VERSIONS.stop - 1) == (4, 18)


def test_what_is_shown_of_a_response_holds_no_record_bytes() -> None:
    body = {"responses": [{"topic_id": ZERO_UUID, "partitions": [{"records": b"secret", "partition_index": 3}]}]}
    response = read_fetch_response(frame_of(13, body), 13)
    assert repr(response) == "<FetchResponse 1, error 0, 1 partitions>"
    assert repr(response.partitions[0]) == f"<FetchedPartition {'0' * 32}-3, error 0, 6 bytes>"


def test_results_are_made_by_the_reader_only() -> None:
    for kind in (FetchResponse, FetchedPartition):
        with pytest.raises(TypeError, match="made by read_fetch_response"):
            kind()


def test_the_frame_lives_as_long_as_its_records() -> None:
    frame = bytearray(frame_of(12, {"responses": [{"topic": "t", "partitions": [{"records": b"abc"}]}]}))
    before = sys.getrefcount(frame)
    records = read_fetch_response(frame, 12).partitions[0].records
    assert sys.getrefcount(frame) > before
    with pytest.raises(BufferError):
        frame.clear()
    del records
    assert sys.getrefcount(frame) == before
    frame.clear()
