"""Bytes a broken or hostile peer could send, for every API, version and direction.

The bad inputs 5, 6 and 8 of the threat model: shorter than the schema, lengths negative or beyond the rest, counts and tags that
claim the world, codes and tags nobody knows. Whatever comes, the answer is ProtocolError or a message, in little memory.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from fastfetch.errors import ProtocolError
from fastfetch.protocol import Api, codec, decode_request, decode_response, encode_response, tables

from .messages import SIZES, Direction, Site, SlowWriter, every_message, full_body, random_body, uvarint

ROUNDS = float(os.environ.get("FASTFETCH_ROUNDS", "1"))


def decode(api: Api, version: int, direction: Direction, frame: Any) -> dict[str, Any]:
    if direction == "request":
        return decode_request(frame).body
    return decode_response(api, version, frame)[1]


def sample(api: Api, version: int, direction: Direction, *, seed: int = 0) -> tuple[dict[str, Any], bytes, list[Site]]:
    """A message in which everything is present, and where its lengths are."""
    rng = random.Random(f"{seed} {api.name} {version} {direction}")
    body = random_body(rng, getattr(api, direction), version, rich=True)
    if api is tables.API_VERSIONS and direction == "response":
        body["error_code"] = 0
    writer = SlowWriter(api, version, direction)
    return body, writer.frame(5, "app", body), writer.sites


def peak_of(call: Callable[[], Any]) -> int:
    """Peak of bytes allocated by Python while `call` runs."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def refused(api: Api, version: int, direction: Direction, frame: bytes, name: str, why: str = "") -> None:
    """ProtocolError that says where and why, before anything large was allocated."""

    def call() -> None:
        with pytest.raises(ProtocolError) as caught:
            decode(api, version, direction, frame)
        message = str(caught.value)
        assert f"{api.name} v{version} {direction}" in message
        assert name in message
        assert why in message

    assert peak_of(call) < 200_000 + 40 * len(frame)


@pytest.mark.parametrize(("api", "version", "direction"), every_message())
def test_every_truncation_is_a_protocol_error(api: Api, version: int, direction: Direction) -> None:
    body, frame, _ = sample(api, version, direction)
    assert decode(api, version, direction, frame) == full_body(getattr(api, direction), body, version)
    for cut in range(len(frame)):
        with pytest.raises(ProtocolError):
            decode(api, version, direction, frame[:cut])


@pytest.mark.parametrize(("api", "version", "direction"), every_message())
def test_a_count_beyond_the_bytes_is_refused_before_allocating(api: Api, version: int, direction: Direction) -> None:
    _, frame, sites = sample(api, version, direction)
    for site in sites:
        if site.kind != "array":
            continue
        left = len(frame) - site.end
        counts = [2**31 - 1, left // site.smallest + 1]
        if site.flexible:
            lies = [uvarint(count + 1) for count in counts] + [uvarint(2**32 - 1)]
        else:
            lies = [count.to_bytes(4, "big") for count in counts] + [(-2).to_bytes(4, "big", signed=True), b"\x80\0\0\0"]
        for lie in lies:
            # The count itself is refused, not the first element that isn't there.
            refused(api, version, direction, frame[: site.start] + lie + frame[site.end :], site.name + ": a count of ")


@pytest.mark.parametrize(("api", "version", "direction"), every_message())
def test_a_length_below_null_or_beyond_the_rest_is_refused(api: Api, version: int, direction: Direction) -> None:
    _, frame, sites = sample(api, version, direction)
    for site in sites:
        if site.kind not in ("string", "bytes"):
            continue
        beyond = len(frame) - site.end + 1
        if site.flexible:
            lies = [uvarint(beyond + 1), uvarint(2**31), uvarint(2**32 - 1)]
        elif site.kind == "string":
            lies = [beyond.to_bytes(2, "big"), b"\x7f\xff", b"\xff\xfe", b"\x80\0"]
        else:
            lies = [beyond.to_bytes(4, "big"), b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x80\0\0\0"]
        for lie in lies:
            refused(api, version, direction, frame[: site.start] + lie + frame[site.end :], site.name)


@pytest.mark.parametrize(("api", "version", "direction"), every_message())
def test_null_is_taken_where_it_is_allowed_and_refused_where_not(api: Api, version: int, direction: Direction) -> None:
    _, full, sites = sample(api, version, direction)
    for site in sites:
        if site.kind in ("string", "bytes", "array") and not site.nullable:
            null = b"\0" if site.flexible else b"\xff" * (site.end - site.start)
            refused(api, version, direction, full[: site.start] + null + full[site.end :], site.name)
    rng = random.Random(f"null {api.name} {version} {direction}")
    for f in [f for f in getattr(api, direction) if f.present_in(version) and f.tag is None]:
        if f.type in SIZES or f.type == "struct":
            continue
        body = random_body(rng, getattr(api, direction), version, rich=True)
        if api is tables.API_VERSIONS and direction == "response":
            body["error_code"] = 0
        body[f.name] = None
        frame = SlowWriter(api, version, direction).frame(1, None, body)
        if f.nullable_in(version):
            assert decode(api, version, direction, frame)[f.name] is None
        else:
            refused(api, version, direction, frame, f.name)
        if f.is_array or f.type in ("bytes", "records"):
            body[f.name] = [] if f.is_array else b""
            read = decode(api, version, direction, SlowWriter(api, version, direction).frame(1, None, body))[f.name]
            assert read is not None
            assert len(read) == 0


@pytest.mark.parametrize(("api", "version", "direction"), every_message())
def test_unknown_tags_are_harmless_in_every_struct(api: Api, version: int, direction: Direction) -> None:
    body, frame, sites = sample(api, version, direction)
    expected = full_body(getattr(api, direction), body, version)
    tag_sites = [site for site in sites if site.kind == "tags"]
    assert bool(tag_sites) == api.is_flexible(version) or (api is tables.API_VERSIONS and direction == "response")
    sizes = [site.start for site in sites if site.kind == "tag"]
    for site in tag_sites:
        if any(_inside_tag(frame, start, site.start) for start in sizes):
            continue  # its parent's tag would have to grow too; test_codec covers structs inside tags
        count = frame[site.start]
        for tags in (
            uvarint(50) + uvarint(0),
            uvarint(2**31) + uvarint(3) + b"\xff\xff\xff",
            uvarint(7) + uvarint(200) + bytes(200) + uvarint(100_000) + uvarint(1) + b"\0",
        ):
            more = 2 if len(tags) > 200 else 1
            with_tags = frame[: site.start] + uvarint(count + more) + tags + frame[site.end :]
            assert decode(api, version, direction, with_tags) == expected


def _inside_tag(frame: bytes, size_at: int, at: int) -> bool:
    """Does `at` lie in the tagged field whose size is written at `size_at`?"""
    size, shift = 0, 0
    while True:
        byte = frame[size_at]
        size |= (byte & 127) << shift
        size_at, shift = size_at + 1, shift + 7
        if byte < 128:
            return size_at <= at < size_at + size


@pytest.mark.parametrize(("api", "version", "direction"), every_message())
def test_tag_counts_and_sizes_beyond_the_rest_are_refused(api: Api, version: int, direction: Direction) -> None:
    _, frame, sites = sample(api, version, direction)
    sizes = [site.start for site in sites if site.kind == "tag"]
    for site in sites:
        head, tail = frame[: site.start], frame[site.end :]
        if site.kind == "tags":
            count = frame[site.start]
            for number in (2**31, 2**32 - 1, len(tail) // 2 + 1):
                # A longer varint inside a tagged field doesn't fit that field any more, and is refused for it.
                why = "" if any(_inside_tag(frame, start, site.start) for start in sizes) else f"{number} tagged fields declared"
                refused(api, version, direction, head + uvarint(number) + tail, "tagged fields", why)
            for lie in (
                b"\xff\xff\xff\xff\x10",  # 33 bits
                b"\xff\xff\xff\xff\xff\x00",  # 6 bytes
                uvarint(count + 1) + uvarint(99) + uvarint(len(tail) + 1),
                uvarint(count + 1) + uvarint(99) + uvarint(2**32 - 1),
            ):
                with pytest.raises(ProtocolError, match=f"{api.name} v{version} {direction}"):
                    decode(api, version, direction, head + lie + tail)
        elif site.kind == "tag":
            for lie in (uvarint(len(tail) + 1), uvarint(2**31), uvarint(2**32 - 1), uvarint(0), uvarint(frame[site.start] - 1)):
                refused(api, version, direction, head + lie + tail, site.name)


@pytest.mark.parametrize(("api", "version", "direction"), every_message())
def test_unknown_error_codes_are_just_numbers(api: Api, version: int, direction: Direction) -> None:
    if direction == "request":
        return

    def with_code(body: Any, code: int) -> Any:
        if isinstance(body, dict):
            return {key: code if key == "error_code" else with_code(value, code) for key, value in body.items()}
        return [with_code(item, code) for item in body] if isinstance(body, list) else body

    body, _, _ = sample(api, version, direction)
    for code in (32767, -32768, -2, 9999):
        changed = with_code(body, code)
        read = decode(api, version, direction, encode_response(api, version, 1, changed)[4:])
        assert read == full_body(api.response, changed, version)


@pytest.mark.parametrize(("api", "version", "direction"), every_message())
def test_any_bytes_are_a_message_or_a_protocol_error(api: Api, version: int, direction: Direction) -> None:
    rng = random.Random(f"noise {api.name} {version} {direction}")
    _, frame, sites = sample(api, version, direction, seed=1)
    header = 8 if direction == "request" else 4
    nasty = [bytes.fromhex(lie) for lie in ("ffffffff0f", "7fffffff", "ffffffff", "8080808000", "00", "01", "ffff")]
    started = time.perf_counter()

    def attack() -> None:
        for turn in range(max(1, int(60 * ROUNDS))):
            data = bytearray(frame)
            for _ in range(rng.choice((1, 1, 2, 5))):
                at = rng.choice(sites).start if sites and turn % 2 else rng.randrange(header, max(header + 1, len(data)))
                lie = rng.choice(nasty) if turn % 3 else bytes([rng.randrange(256)])
                data[at : at + len(lie)] = lie
            with contextlib.suppress(ProtocolError):
                decode(api, version, direction, bytes(data))

    assert peak_of(attack) < 300_000 + 60 * len(frame)
    assert time.perf_counter() - started < 20


def test_the_budget_bounds_what_tiny_structs_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros are the densest message: a frame of nothing else that keeps within its bytes must not become gigabytes of dicts."""
    monkeypatch.setattr(codec, "BUDGET", 8 * 1000)
    smallest = 2 + 1 + 1 + 1 + 1  # Metadata v9: error, name, is_internal, partitions, authorized operations follow below
    count = 5000
    frame = bytes(4) + b"\0" + bytes(4) + uvarint(1) + b"\0" + bytes(4) + uvarint(count + 1) + bytes(count * (smallest + 5))
    with pytest.raises(ProtocolError, match="topics: a count of 5000 makes the message larger"):
        decode_response(tables.METADATA, 9, frame)
    monkeypatch.setattr(codec, "BUDGET", 8 * 5000)
    with pytest.raises(ProtocolError, match=r"topics\[0\]"):  # admitted, and then judged by its content: a null name
        decode_response(tables.METADATA, 9, frame)


def test_the_budget_counts_what_hides_in_tagged_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"supported_features": [{"name": "f"}] * 30, "finalized_features": [{"name": "f"}] * 30}
    frame = encode_response(tables.API_VERSIONS, 4, 1, body)[4:]
    monkeypatch.setattr(codec, "BUDGET", 8 * 60 + 2 * 2)
    assert len(decode_response(tables.API_VERSIONS, 4, frame)[1]["finalized_features"]) == 30
    monkeypatch.setattr(codec, "BUDGET", 8 * 60 + 2 * 2 - 1)
    with pytest.raises(ProtocolError, match="finalized_features: a count of 30 makes"):
        decode_response(tables.API_VERSIONS, 4, frame)


def test_the_budget_bounds_the_time_that_unknown_tags_take(monkeypatch: pytest.MonkeyPatch) -> None:
    tags = uvarint(1000) + b"\x40\x00" * 1000
    frame = bytes(4) + b"\0" + bytes(4) + bytes(2) + tags
    assert decode_response(tables.HEARTBEAT, 4, frame)[1]["error_code"] == 0
    monkeypatch.setattr(codec, "BUDGET", 1999)
    with pytest.raises(ProtocolError, match="1000 tagged fields make the message longer"):
        decode_response(tables.HEARTBEAT, 4, frame)
    with pytest.raises(ProtocolError, match=r"header.*1000 tagged fields make the message longer"):
        decode_response(tables.HEARTBEAT, 4, bytes(4) + tags + bytes(7))


def test_a_million_partitions_fit_the_budget_even_with_a_tag_that_nobody_knows_yet() -> None:
    partitions, replicas = 1_000_000, 3
    assert partitions * (8 + 2 * replicas + 2) <= codec.BUDGET


def test_metadata_of_ten_thousand_partitions_is_read_in_reasonable_time() -> None:
    partition = {"leader_id": 1, "replica_nodes": [1, 2, 3], "isr_nodes": [1, 2, 3]}
    topics = [{"name": f"t{t}", "partitions": [partition | {"partition_index": p} for p in range(100)]} for t in range(100)]
    frame = encode_response(tables.METADATA, 12, 1, {"topics": topics})[4:]
    started = time.process_time()
    body = decode_response(tables.METADATA, 12, frame)[1]
    assert time.process_time() - started < 2  # about 0.05; ten times a slow machine, and far below a quadratic codec
    assert sum(len(topic["partitions"]) for topic in body["topics"]) == 10_000
