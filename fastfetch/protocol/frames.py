"""Whole messages: size, header and body.

    int32 size | request header v1: int16 api_key, int16 api_version, int32 correlation_id, nullable string client_id   | body
               | request header v2: v1, then tagged fields; client_id keeps its int16 length                             |
    int32 size | response header v0: int32 correlation_id                                                               | body
               | response header v1: v0, then tagged fields                                                              |

Flexible versions of an API use request header v2 and response header v1. ApiVersions answers with header v0 in every version, and
with a *v0 body* where it refuses the version asked for (KIP-511): the client doesn't know yet what the broker speaks.

What follows the last field of a *response* is ignored, as the Java client and others do: some services that speak Kafka's
protocol may leave bytes there. In a *request* it is an error unless the reader says otherwise: requests are read by test brokers,
which should find the client's mistakes. Real brokers don't look; librdkafka's Metadata v13 for all topics is 3 bytes too long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from fastfetch.errors import ProtocolError, UnsupportedVersionError, UsageError
from fastfetch.protocol import tables
from fastfetch.protocol.codec import Malformed, Read, Reader, compile_reader
from fastfetch.protocol.schema import Api, F
from fastfetch.protocol.writer import Write, compile_writer, write_body

__all__ = ["Request", "decode_request", "decode_response", "encode_request", "encode_response"]

Buffer = bytes | bytearray | memoryview
Direction = Literal["request", "response"]

_UNSUPPORTED_VERSION = 35

# Header v1. Of a flexible API tagged fields follow; the client id's length is an int16 all the same.
_HEADER = (
    F("api_key", "int16", "0+"),
    F("api_version", "int16", "0+"),
    F("correlation_id", "int32", "0+"),
    F("client_id", "string", "0+", nullable="0+"),
)
_read_header, _write_header = compile_reader(_HEADER, 0, flexible=False), compile_writer(_HEADER, 0, flexible=False)
_write_correlation_id = compile_writer((F("correlation_id", "int32", "0+"),), 0, flexible=False)


@dataclass(frozen=True, slots=True)
class Request:
    """A request as a broker reads it.

    `version` is what the client asked for. Of ApiVersions it may be one that this package doesn't know: then `body` is empty, and
    the answer is error 35 in a v0 body (`encode_response` does that by itself). `left_over` counts bytes behind the last field.
    """

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    body: dict[str, Any]
    left_over: int = 0


@cache
def _reader(api: Api, direction: Direction, version: int) -> Read:
    return compile_reader(getattr(api, direction), version, api.is_flexible(version))


@cache
def _writer(api: Api, direction: Direction, version: int) -> Write:
    return compile_writer(getattr(api, direction), version, api.is_flexible(version))


def _check_version(api: Api, version: int) -> None:
    if not api.knows(version):
        raise UnsupportedVersionError(
            f"{api.name} (api key {api.key}) v{version} is unknown to fastfetch, which speaks versions {api.min_version} to "
            f"{api.max_version}"
        )


def _with_size(out: bytearray) -> bytes:
    size = len(out) - 4
    if size > 0x7FFFFFFF:
        raise UsageError(f"a message of {size} bytes is too long for the protocol")
    out[:4] = size.to_bytes(4, "big")
    return bytes(out)


def encode_request(api: Api, version: int, correlation_id: int, client_id: str | None, body: Mapping[str, Any]) -> bytes:
    """The whole frame of a request, size in front.

    Keys missing from `body` take the schema's defaults. Raises UsageError for an unknown key, a value that doesn't fit its field,
    or a field that this version lacks and that may not be dropped; UnsupportedVersionError for a version that isn't in the table.
    """
    _check_version(api, version)
    out = bytearray(4)
    label = f"{api.name} v{version} request"
    header = {"api_key": api.key, "api_version": version, "correlation_id": correlation_id, "client_id": client_id}
    write_body(_write_header, out, header, label)
    if api.is_flexible(version):
        out.append(0)
    write_body(_writer(api, "request", version), out, body, label)
    return _with_size(out)


def encode_response(api: Api, version: int, correlation_id: int, body: Mapping[str, Any]) -> bytes:
    """The whole frame of a response, size in front. Errors as in `encode_request`.

    ApiVersions with error_code 35 is written as v0, whatever `version` says.
    """
    if api is tables.API_VERSIONS and body.get("error_code") == _UNSUPPORTED_VERSION:
        version = 0
    _check_version(api, version)
    out = bytearray(4)
    label = f"{api.name} v{version} response"
    write_body(_write_correlation_id, out, {"correlation_id": correlation_id}, label)
    if api.is_flexible(version) and api is not tables.API_VERSIONS:
        out.append(0)
    write_body(_writer(api, "response", version), out, body, label)
    return _with_size(out)


def decode_response(api: Api, version: int, frame: Buffer) -> tuple[int, dict[str, Any]]:
    """Correlation id and body of a response. `frame` starts after the size.

    `records` fields are views of the frame, everything else is copied. An answer of ApiVersions that starts with error 35 is read
    as v0. Raises ProtocolError, naming API, version and field, for bytes that don't fit the table.
    """
    _check_version(api, version)
    r = Reader(memoryview(frame).cast("B"))
    field = "correlation_id"
    try:
        correlation_id = r.int32()
        field = ""
        if api is tables.API_VERSIONS:
            if r.left() >= 2 and bytes(r.data[r.at : r.at + 2]) == _UNSUPPORTED_VERSION.to_bytes(2, "big"):
                version = 0
        elif api.is_flexible(version):
            field = "header's tagged fields"
            r.skip_tags()
            field = ""
        body: dict[str, Any] = _reader(api, "response", version)(r)
    except Malformed as bad:
        if field:
            bad.path.append(field)
        raise ProtocolError(f"{api.name} v{version} response: {bad}; the frame has {r.end} bytes") from None
    return correlation_id, body


def decode_request(frame: Buffer, *, apis: Mapping[int, Api] = tables.BY_KEY, allow_left_over: bool = False) -> Request:
    """Header and body of a request to one of `apis`. `frame` starts after the size.

    Raises ProtocolError for bytes that don't fit, and UnsupportedVersionError for an API or a version that isn't in the tables (a
    broker then closes the connection), except ApiVersions, see `Request`.
    """
    r = Reader(memoryview(frame).cast("B"))
    label, field = "request", "header"
    try:
        header = _read_header(r)
        key, version = header["api_key"], header["api_version"]
        api = apis.get(key)
        if api is None:
            raise UnsupportedVersionError(f"a request for api key {key}, v{version}: fastfetch has no table of it")
        label = f"{api.name} v{version} request"
        if not api.knows(version):
            if api is not tables.API_VERSIONS:
                _check_version(api, version)
            return Request(api, version, header["correlation_id"], header["client_id"], {})
        if api.is_flexible(version):
            r.skip_tags()
        field = ""
        body: dict[str, Any] = _reader(api, "request", version)(r)
        if r.at != r.end and not allow_left_over:
            raise Malformed(f"{r.left()} bytes left over", r.at)
    except Malformed as bad:
        if field:
            bad.path.append(field)
        raise ProtocolError(f"{label}: {bad}; the frame has {r.end} bytes") from None
    return Request(api, version, header["correlation_id"], header["client_id"], body, r.left())
