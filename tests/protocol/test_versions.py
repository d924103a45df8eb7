"""Negotiation: KIP-35, and what KIP-511 says of a broker that doesn't know our ApiVersions."""

from __future__ import annotations

import struct

import pytest

from fastfetch.errors import ProtocolError, UnsupportedVersionError
from fastfetch.protocol import (
    broker_versions,
    choose_version,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    retry_api_versions,
    tables,
)

# What brokers advertise: (api key: range).
KAFKA_2_8 = {1: (0, 12), 2: (0, 6), 3: (0, 11), 8: (0, 8), 9: (0, 7), 10: (0, 3), 15: (0, 5), 16: (0, 4), 18: (0, 3), 23: (0, 4)}
KAFKA_4_1 = {
    0: (0, 13), 1: (4, 18), 2: (1, 10), 3: (0, 13), 8: (2, 9), 9: (1, 9), 10: (0, 6), 15: (0, 6), 16: (0, 5), 18: (0, 4),
    23: (2, 4), 68: (0, 1), 69: (0, 1),
}  # fmt: skip


@pytest.mark.parametrize(
    ("broker", "wanted"),
    [
        (KAFKA_2_8, {1: 12, 2: 6, 3: 11, 8: 8, 9: 7, 10: 3, 15: 5, 16: 4, 18: 3, 23: 4}),
        (KAFKA_4_1, {1: 18, 2: 10, 3: 13, 8: 9, 9: 9, 10: 6, 15: 6, 16: 5, 18: 4, 23: 4, 68: 1, 69: 1}),
    ],
)
def test_the_highest_common_version_is_chosen(broker: dict[int, tuple[int, int]], wanted: dict[int, int]) -> None:
    assert {key: choose_version(tables.BY_KEY[key], broker) for key in wanted} == wanted


def test_the_callers_bounds_count_too() -> None:
    assert choose_version(tables.FETCH, KAFKA_4_1, at_most=12) == 12
    assert choose_version(tables.FETCH, KAFKA_4_1, at_least=13, at_most=16) == 16
    with pytest.raises(UnsupportedVersionError, match="and needs 13 to 18 here"):
        choose_version(tables.FETCH, KAFKA_2_8, at_least=13)


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        ((0, 3), "fastfetch speaks 4 to 18, node 7 speaks versions 0 to 3"),
        ((19, 25), "node 7 speaks versions 19 to 25"),
        (None, "node 7 doesn't offer it"),
    ],
)
def test_no_common_version_names_the_api_and_both_ranges(theirs: tuple[int, int] | None, message: str) -> None:
    broker = {} if theirs is None else {1: theirs}
    with pytest.raises(UnsupportedVersionError, match=r"no common version of Fetch \(api key 1\)") as caught:
        choose_version(tables.FETCH, broker, node="node 7")
    assert message in str(caught.value)


def test_ranges_that_hold_nothing_are_not_offers() -> None:
    entries = [(1, 4, 12), (1, 4, 17), (2, 5, 4), (3, -1, 5), (9, 0, -1), (10, 3, 3)]
    keys = [{"api_key": key, "min_version": low, "max_version": high} for key, low, high in entries]
    assert broker_versions({"api_keys": keys}) == {1: (4, 12), 10: (3, 3)}


def test_a_broker_that_refuses_our_apiversions_answers_in_v0() -> None:
    """The bytes of a stock broker: error 35, then its own range of ApiVersions and nothing else."""
    frame = struct.pack(">ihihhh", 77, 35, 1, 18, 0, 2)
    for asked in (0, 1, 2, 3, 4):
        correlation_id, body = decode_response(tables.API_VERSIONS, asked, frame)
        assert correlation_id == 77
        assert body["error_code"] == 35
        assert broker_versions(body) == {18: (0, 2)}
    assert retry_api_versions(4, body) == 2
    written = encode_response(
        tables.API_VERSIONS, 4, 77, {"error_code": 35, "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 2}]}
    )
    assert written[4:] == frame


def test_an_old_broker_may_list_nothing() -> None:
    body = decode_response(tables.API_VERSIONS, 4, struct.pack(">ihi", 1, 35, 0))[1]
    assert retry_api_versions(4, body) == 0


def test_a_cut_refusal_is_a_protocol_error() -> None:
    frame = struct.pack(">ihihhh", 77, 35, 1, 18, 0, 2)
    for cut in range(len(frame)):
        with pytest.raises(ProtocolError, match="ApiVersions"):
            decode_response(tables.API_VERSIONS, 4, frame[:cut])


def test_retries_end() -> None:
    """A peer that answers 35 to everything and always claims to know more: the versions asked for fall strictly."""
    body = {"api_keys": [{"api_key": 18, "min_version": 0, "max_version": 32767}]}
    asked = [4]
    while asked[-1] > 0:
        asked.append(retry_api_versions(asked[-1], body))
    assert asked == [4, 3, 2, 1, 0]
    with pytest.raises(UnsupportedVersionError, match="ApiVersions"):
        retry_api_versions(0, body)


def test_a_broker_that_only_knows_newer_versions_is_a_clear_error() -> None:
    body = {"api_keys": [{"api_key": 18, "min_version": 6, "max_version": 9}]}
    with pytest.raises(UnsupportedVersionError, match="fastfetch speaks 0 to 4, the broker refused 4 and speaks 6 to 9"):
        retry_api_versions(4, body)


def test_both_sides_meet_through_the_tables() -> None:
    """Client and broker of this package, over bytes: the whole negotiation with a broker that knows less."""
    known = {18: (0, 2), 3: (0, 8)}
    version, asked = tables.API_VERSIONS.max_version, []
    while True:
        asked.append(version)
        request = decode_request(encode_request(tables.API_VERSIONS, version, 1, "c", {"client_software_name": "ff"})[4:])
        keys = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in known.items()]
        refused = request.version > known[18][1]
        answer = {"error_code": 35, "api_keys": keys[:1]} if refused else {"api_keys": keys}
        body = decode_response(request.api, version, encode_response(request.api, version, 1, answer)[4:])[1]
        if body["error_code"] == 0:
            break
        version = retry_api_versions(version, body)
    assert asked == [4, 2]
    assert choose_version(tables.METADATA, broker_versions(body)) == 8
