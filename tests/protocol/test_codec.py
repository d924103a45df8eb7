"""The codec's own rules: what it accepts, what it refuses, and what a caller gets to hear."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from fastfetch.errors import ProtocolError, UnsupportedVersionError, UsageError
from fastfetch.protocol import (
    ZERO_UUID,
    Api,
    Field,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    tables,
)
from fastfetch.protocol.codec import Malformed, Reader, compile_reader, smallest_struct
from fastfetch.protocol.schema import parse_versions

from .messages import every_message, uvarint


def reader(data: bytes) -> Reader:
    return Reader(memoryview(data))


# Varints and tags


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\0", 0),
        (b"\x7f", 127),
        (b"\x80\x01", 128),
        (b"\x80\x00", 0),
        (b"\x81\x80\x80\x80\x00", 1),
        (b"\xff\xff\xff\xff\x07", 2**31 - 1),
        (b"\xff\xff\xff\xff\x0f", 2**32 - 1),
    ],
)
def test_varints_of_up_to_32_bits_are_read_also_with_zero_padding(data: bytes, value: int) -> None:
    r = reader(data + b"x")
    assert r.uvarint() == value
    assert r.at == len(data)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\x10", b"\x80\x80\x80\x80\x80\x00"])
def test_longer_varints_and_cut_ones_are_refused(data: bytes) -> None:
    with pytest.raises(Malformed, match="varint"):
        reader(data).uvarint()


def partition_with_tags(tags: bytes) -> bytes:
    """A Fetch v12 response with one partition whose tagged fields are given, after the size."""
    partition = struct.pack(">ihqqq", 0, 0, 10, 10, 0) + b"\0" + struct.pack(">i", -1) + b"\0" + tags
    return struct.pack(">i", 1) + b"\0" + struct.pack(">ihi", 0, 0, 0) + b"\x02" + b"\x02t" + b"\x02" + partition + b"\0\0"


def read_partition(tags: bytes) -> dict[str, Any]:
    partition: dict[str, Any] = decode_response(tables.FETCH, 12, partition_with_tags(tags))[1]["responses"][0]["partitions"][0]
    return partition


def test_a_struct_inside_a_tag_has_tagged_fields_of_its_own() -> None:
    leader = struct.pack(">ii", 3, 7)
    inner = uvarint(1) + uvarint(40) + uvarint(2) + b"zz"
    tags = uvarint(1) + uvarint(1) + uvarint(len(leader + inner)) + leader + inner
    assert read_partition(tags)["current_leader"] == {"leader_id": 3, "leader_epoch": 7}


def test_tags_may_come_in_any_order_and_the_last_of_two_counts() -> None:
    def leader(node: int) -> bytes:
        return uvarint(1) + uvarint(9) + struct.pack(">ii", node, 7) + b"\0"

    diverging = uvarint(0) + uvarint(13) + struct.pack(">iq", 5, 55) + b"\0"
    read = read_partition(uvarint(3) + leader(1) + diverging + leader(2))
    assert read["current_leader"] == {"leader_id": 2, "leader_epoch": 7}
    assert read["diverging_epoch"] == {"epoch": 5, "end_offset": 55}


@pytest.mark.parametrize("size", [0, 8, 10, 30])
def test_a_known_tag_has_to_fill_its_size(size: int) -> None:
    tags = uvarint(1) + uvarint(1) + uvarint(size) + struct.pack(">ii", 1, 7) + bytes(40)
    with pytest.raises(ProtocolError, match="current_leader"):
        read_partition(tags)


# Strings and bytes


def test_a_string_that_is_not_utf8_survives_and_is_written_back() -> None:
    frame = bytearray(encode_response(tables.SASL_AUTHENTICATE, 1, 1, {"error_code": 58, "error_message": "no??pe"})[4:])
    at = frame.index(b"??")
    frame[at : at + 2] = b"\xff\xc3"
    body = decode_response(tables.SASL_AUTHENTICATE, 1, frame)[1]
    assert body["error_message"] == "no\udcff\udcc3pe"
    assert encode_response(tables.SASL_AUTHENTICATE, 1, 1, body)[4:] == frame


def test_records_are_a_view_of_the_frame_and_other_bytes_are_copies() -> None:
    body = {"responses": [{"topic": "t", "partitions": [{"records": b"0123456789"}]}]}
    frame = bytearray(encode_response(tables.FETCH, 11, 1, body)[4:])
    records = decode_response(tables.FETCH, 11, frame)[1]["responses"][0]["partitions"][0]["records"]
    assert isinstance(records, memoryview)
    assert records.obj is frame
    assert records == b"0123456789"
    frame = bytearray(encode_response(tables.SASL_AUTHENTICATE, 2, 1, {"auth_bytes": b"x"})[4:])
    assert type(decode_response(tables.SASL_AUTHENTICATE, 2, frame)[1]["auth_bytes"]) is bytes


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_frames_are_any_bytes_like_object(kind: type) -> None:
    frame = kind(encode_response(tables.HEARTBEAT, 4, 77, {"error_code": 27})[4:])
    assert decode_response(tables.HEARTBEAT, 4, frame) == (77, {"throttle_time_ms": 0, "error_code": 27})
    request = decode_request(kind(encode_request(tables.HEARTBEAT, 4, 77, None, {"group_id": "g"})[4:]))
    assert (request.api, request.client_id, request.body["group_id"]) == (tables.HEARTBEAT, None, "g")


# Frames


def test_bytes_after_a_response_are_ignored_and_after_a_request_refused() -> None:
    response = encode_response(tables.HEARTBEAT, 4, 1, {})[4:] + b"xyz"
    assert decode_response(tables.HEARTBEAT, 4, response)[0] == 1
    with pytest.raises(ProtocolError, match="Heartbeat v4 request: message: 3 bytes left over"):
        decode_request(encode_request(tables.HEARTBEAT, 4, 1, "c", {})[4:] + b"xyz")
    # A real broker doesn't look, and librdkafka relies on it.
    lenient = decode_request(encode_request(tables.HEARTBEAT, 4, 1, "c", {"group_id": "g"})[4:] + b"xyz", allow_left_over=True)
    assert (lenient.body["group_id"], lenient.left_over) == ("g", 3)


def test_the_client_id_has_an_int16_length_in_both_header_versions() -> None:
    for version, tags in ((3, b""), (4, b"\0")):
        frame = encode_request(tables.HEARTBEAT, version, 258, "app", {})
        assert frame.startswith(struct.pack(">ihhih", len(frame) - 4, 12, version, 258, 3) + b"app" + tags)


def test_apiversions_answers_with_header_v0_in_every_version() -> None:
    for version in range(5):
        assert encode_response(tables.API_VERSIONS, version, 9, {"error_code": 3})[4:10] == b"\0\0\0\x09\0\x03"
    assert encode_response(tables.HEARTBEAT, 4, 9, {})[4:9] == b"\0\0\0\x09\0"


@pytest.mark.parametrize("length", [-2, -32768, 4, 32767])
def test_a_client_id_that_is_not_there_is_refused(length: int) -> None:
    with pytest.raises(ProtocolError, match=r"request: header\.client_id"):
        decode_request(struct.pack(">hhih", 12, 0, 1, length) + b"abc")


def test_a_request_for_something_unknown_says_so() -> None:
    with pytest.raises(UnsupportedVersionError, match="api key 9999, v3"):
        decode_request(struct.pack(">hhih", 9999, 3, 1, -1))
    with pytest.raises(UnsupportedVersionError, match=r"Metadata \(api key 3\) v99 .* 0 to 13"):
        decode_request(struct.pack(">hhih", 3, 99, 1, -1))
    for call in (
        lambda: encode_request(tables.FETCH, 3, 1, None, {}),
        lambda: encode_response(tables.FETCH, 19, 1, {}),
        lambda: decode_response(tables.FETCH, 3, b""),
    ):
        with pytest.raises(UnsupportedVersionError, match=r"Fetch \(api key 1\)"):
            call()


def test_an_unknown_version_of_apiversions_reaches_the_broker() -> None:
    request = decode_request(struct.pack(">hhih", 18, 77, 5, 3) + b"app\0whatever")
    assert (request.api, request.version, request.correlation_id, request.body) == (tables.API_VERSIONS, 77, 5, {})


def test_an_error_names_the_field_its_index_and_the_byte() -> None:
    topics = [{"name": "a", "partitions": [{}, {}, {"replica_nodes": [77]}]}]
    frame = bytearray(encode_response(tables.METADATA, 8, 1, {"topics": topics})[4:])
    at = frame.index(struct.pack(">ii", 1, 77))
    frame[at : at + 4] = b"\x7f\xff\xff\xff"
    wanted = rf"^Metadata v8 response: topics\[0\]\.partitions\[2\]\.replica_nodes: a count of 2147483647 .* \(at byte {at}\)"
    with pytest.raises(ProtocolError, match=wanted):
        decode_response(tables.METADATA, 8, frame)


# What may be written


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"topic": []}, r"body: unknown key 'topic'; known are .*topics"),
        ({"topics": [{"nme": "x"}]}, r"topics\[0\]: unknown key 'nme'"),
        ({"topics": [{"name": "ok"}, {"name": 5}]}, r"topics\[1\]\.name: a str is needed, not int"),
        ({"topics": [{"name": "x" * 32768}]}, r"topics\[0\]\.name: 32768 bytes long"),
        ({"topics": [{"name": "\ud800"}]}, r"topics\[0\]\.name: not encodable"),
        ({"topics": "abc"}, r"topics: a list is needed, not str"),
        ({"topics": ["abc"]}, r"topics\[0\]: a dict is needed, not str"),
        ({"topics": [{"topic_id": b"short"}]}, r"topics\[0\]\.topic_id: b'short' is no uuid of 16 bytes"),
        ({"allow_auto_topic_creation": None}, r"allow_auto_topic_creation: None is no bool"),
        ({"include_cluster_authorized_operations": True}, r"include_cluster_authorized_operations: this version has no"),
    ],
)
@pytest.mark.parametrize("version", [12])
def test_a_body_that_cannot_be_written_is_a_usage_error(body: dict[str, Any], message: str, version: int) -> None:
    with pytest.raises(UsageError, match=rf"^Metadata v{version} request: {message}"):
        encode_request(tables.METADATA, version, 1, "c", body)


@pytest.mark.parametrize(
    ("api", "version", "body", "message"),
    [
        (tables.METADATA, 0, {"topics": None}, "topics: None where null isn't allowed"),
        (tables.FETCH, 11, {"max_wait_ms": 2**31}, "max_wait_ms: 2147483648 is no int32"),
        (tables.FETCH, 11, {"max_wait_ms": "5"}, "max_wait_ms: '5' is no int32"),
        (tables.FETCH, 11, {"isolation_level": 128}, "isolation_level: 128 is no int8"),
        (tables.FETCH, 12, {"cluster_id": 5}, "cluster_id: a str is needed"),
        (tables.SASL_AUTHENTICATE, 2, {"auth_bytes": "text"}, "auth_bytes: a bytes-like object is needed, not str"),
        (tables.SASL_AUTHENTICATE, 2, {"auth_bytes": None}, "auth_bytes: None where null isn't allowed"),
        (tables.HEARTBEAT, 2, {"group_instance_id": "i"}, "group_instance_id: this version has no such field"),
    ],
)
def test_values_are_checked_against_their_types(api: Api, version: int, body: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        encode_request(api, version, 1, "c", body)


def test_the_client_id_and_the_correlation_id_are_checked() -> None:
    with pytest.raises(UsageError, match="Heartbeat v0 request: client_id: a str is needed"):
        encode_request(tables.HEARTBEAT, 0, 1, b"bytes", {})  # type: ignore[arg-type]
    for number in (2**31, -(2**31) - 1):
        with pytest.raises(UsageError, match=f"correlation_id: {number} is no int32"):
            encode_request(tables.HEARTBEAT, 0, number, None, {})
        with pytest.raises(UsageError, match=f"correlation_id: {number} is no int32"):
            encode_response(tables.HEARTBEAT, 0, number, {})


def test_a_field_that_a_version_lacks_may_be_given_if_it_is_ignorable_or_at_its_default() -> None:
    """An engine fills in one body and sends it in whatever version the broker knows."""
    commit = {"group_id": "g", "topics": [{"name": "t", "partitions": [{"committed_offset": 5, "committed_leader_epoch": 3}]}]}
    request = decode_request(encode_request(tables.OFFSET_COMMIT, 5, 1, None, commit | {"group_instance_id": None})[4:])
    assert request.body["topics"][0]["partitions"][0]["committed_leader_epoch"] == -1
    fetch = {"topics": [{"topic": "t", "topic_id": b"i" * 16, "partitions": [{"fetch_offset": 3}]}]}
    for version in (12, 13):
        topic = decode_request(encode_request(tables.FETCH, version, 1, None, fetch)[4:]).body["topics"][0]
        assert (topic["topic"], topic["topic_id"]) == (("t", ZERO_UUID) if version == 12 else ("", b"i" * 16))


def test_a_tagged_field_at_its_default_takes_no_bytes() -> None:
    plain = encode_request(tables.FETCH, 17, 1, None, {})
    defaults = {"cluster_id": None, "replica_state": {"replica_id": -1, "replica_epoch": -1}}
    assert encode_request(tables.FETCH, 17, 1, None, defaults) == plain
    assert encode_request(tables.FETCH, 17, 1, None, {"replica_state": {"replica_id": 3}}) != plain


@pytest.mark.parametrize(("api", "version", "direction"), every_message())
def test_defaults_are_a_messages_own(api: Api, version: int, direction: str) -> None:
    """Changing one decoded body must not show in the next."""

    def decoded() -> dict[str, Any]:
        if direction == "request":
            return decode_request(encode_request(api, version, 1, None, {})[4:]).body
        return decode_response(api, version, encode_response(api, version, 1, {})[4:])[1]

    first, untouched = decoded(), decoded()
    assert first == untouched
    for value in first.values():
        if isinstance(value, list):
            value.append("spoilt")
        elif isinstance(value, dict):
            value["spoilt"] = True
    assert decoded() == untouched


# The tables


@pytest.mark.parametrize(("api", "version", "direction"), every_message())
def test_every_array_element_takes_at_least_a_byte(api: Api, version: int, direction: str) -> None:
    """What bounds a count: an element of no bytes could be had any number of times."""

    def check(fields: tuple[Field, ...]) -> None:
        for f in fields:
            if f.element == "struct":
                assert smallest_struct(f.fields, version, api.is_flexible(version)) >= 1
                check(f.fields)

    check(getattr(api, direction))


def test_smallest_struct_is_what_an_empty_message_takes() -> None:
    for api in tables.ALL:
        for version in range(api.min_version, api.max_version + 1):
            header = 4 + (api.is_flexible(version) and api is not tables.API_VERSIONS)
            frame = encode_response(api, version, 1, {})[4:]
            smallest = smallest_struct(api.response, version, api.is_flexible(version))
            assert smallest <= len(frame) - header
            compile_reader(api.response, version, api.is_flexible(version))


@pytest.mark.parametrize(("text", "versions"), [("0+", (0, 32767)), ("3-7", (3, 7)), ("4", (4, 4)), ("", (1, 0))])
def test_versions_are_written_as_kafka_writes_them(text: str, versions: tuple[int, int]) -> None:
    assert parse_versions(text) == versions


def test_tables_are_well_formed() -> None:
    for api in tables.ALL:
        assert tables.BY_KEY[api.key] is api
        assert getattr(tables, "".join("_" + c if c.isupper() else c.upper() for c in api.name).lstrip("_")) is api
        for fields in (api.request, api.response):
            stack = [fields]
            while stack:
                level = stack.pop()
                assert len({f.name for f in level}) == len(level)
                for f in level:
                    assert (f.element == "struct") == bool(f.fields), f.name
                    if f.tag is not None:  # tags exist in flexible versions only
                        assert api.flexible_from is not None
                        assert parse_versions(f.versions)[0] >= api.flexible_from
                    if f.nullable:
                        assert parse_versions(f.versions)[0] <= parse_versions(f.nullable)[0]
                    if f.fields:
                        stack.append(f.fields)
