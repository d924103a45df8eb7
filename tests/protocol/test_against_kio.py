"""Every API, version and direction against kio, whose classes are generated from Kafka's own schemas.

Random messages, both ways: our bytes are kio's bytes, kio reads what we wrote, and we read what kio wrote.
"""

from __future__ import annotations

import dataclasses
import io
import os
import random
import typing
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kio.index import UnknownEntity, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from fastfetch import errors
from fastfetch.protocol import Api, Field, decode_request, decode_response, encode_request, encode_response, tables
from fastfetch.testing.writing import WRITING_APIS

from .messages import Direction, SlowWriter, every_message, full_body, random_body

APIS = tables.BY_KEY | WRITING_APIS  # those of the test broker too
LOAD = {"request": load_request_schema, "response": load_response_schema}
MESSAGES = max(1, int(15 * float(os.environ.get("FASTFETCH_ROUNDS", "1"))))


def to_kio(schema: Any, body: dict[str, Any]) -> Any:
    """The kio object that says what a body says."""
    hints = typing.get_type_hints(schema)
    values: dict[str, Any] = {}
    names = [f.name for f in dataclasses.fields(schema)]
    ours = list(body)
    assert len(names) == len(ours), f"{schema.__name__}: kio has {names}, the table {ours}"
    for f, (name, value) in zip(dataclasses.fields(schema), body.items(), strict=True):
        assert name in (f.name, f.name + "_ms"), f"{schema.__name__}: {f.name} in kio, {name} in the table"
        inner = _inner_schema(hints[f.name])
        if inner is not None and isinstance(value, list):
            values[f.name] = tuple(to_kio(inner, item) for item in value)
        elif inner is not None and isinstance(value, dict):
            values[f.name] = to_kio(inner, value)
        elif isinstance(value, list):
            values[f.name] = tuple(value)
        else:
            values[f.name] = _to_kio_scalar(f.metadata.get("kafka_type"), value)
    return schema(**values)


def _inner_schema(hint: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        return hint
    for argument in typing.get_args(hint):
        found = _inner_schema(argument)
        if found is not None:
            return found
    return None


def _to_kio_scalar(kind: str | None, value: Any) -> Any:
    if kind == "error_code":
        return ErrorCode(value)
    if kind is not None and kind.startswith("timedelta"):
        return timedelta(milliseconds=value)
    if kind == "datetime_i64":
        return None if value == -1 else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=value)
    if kind == "uuid":
        return uuid.UUID(bytes=value) if any(value) else None
    return value


def kio_bytes(entity: Any, correlation_id: int, client_id: str | None) -> bytes:
    out = io.BytesIO()
    header = type(entity).__header_schema__
    if hasattr(header, "request_api_key"):
        version, key = type(entity).__version__, type(entity).__api_key__
        value = header(request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id=client_id)
    else:
        value = header(correlation_id=correlation_id)
    entity_writer(header)(out, value)
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def kio_read(schema: Any, frame: bytes) -> Any:
    _, at = entity_reader(schema.__header_schema__)(frame, 0)
    entity, size = entity_reader(schema)(frame, at)
    assert at + size == len(frame)
    return entity


def small_times(body: Any) -> Any:
    """timedelta and datetime hold less than an int64 of milliseconds."""
    if isinstance(body, dict):
        return {
            k: v % (2**40) if k in ("retention_time_ms", "session_lifetime_ms", "log_append_time_ms") else small_times(v)
            for k, v in body.items()
        }
    return [small_times(item) for item in body] if isinstance(body, list) else body


@pytest.mark.parametrize(("api", "version", "direction"), every_message(APIS.values()))
def test_random_messages_are_kios_both_ways(api: Api, version: int, direction: Direction) -> None:
    rng = random.Random(f"{api.name} {version} {direction}")
    schema = LOAD[direction](api.key, version)
    fields = getattr(api, direction)
    for turn in range(MESSAGES):
        body = small_times(random_body(rng, fields, version, rich=turn == 0))
        correlation_id = rng.randint(-(2**31), 2**31 - 1)
        client_id = rng.choice((None, "", "an-app", "ä" * 200))
        entity = to_kio(schema, body)
        theirs = kio_bytes(entity, correlation_id, client_id)
        if direction == "request":
            frame = encode_request(api, version, correlation_id, client_id, body)
            request = decode_request(theirs, apis=APIS)
            assert (request.api, request.version) == (api, version)
            assert (request.correlation_id, request.client_id) == (correlation_id, client_id)
            read = request.body
        else:
            if api is tables.API_VERSIONS and body["error_code"] == 35:
                continue  # has a form of its own, see test_versions
            frame = encode_response(api, version, correlation_id, body)
            read_id, read = decode_response(api, version, theirs)
            assert read_id == correlation_id
        assert frame[:4] == len(theirs).to_bytes(4, "big")
        assert frame[4:] == theirs
        assert read == full_body(fields, body, version)
        assert list(read) == [f.name for f in fields]
        assert kio_read(schema, frame[4:]) == entity
        # The tests' own slow writer is used in the hostile tests; here it proves that it knows the format.
        assert SlowWriter(api, version, direction).frame(correlation_id, client_id, body) == theirs


@pytest.mark.parametrize(("api", "version", "direction"), every_message())
def test_what_a_caller_leaves_out_has_the_schemas_default(api: Api, version: int, direction: Direction) -> None:
    """A body with only the fields that have no default in Kafka's schema, against kio's object of the same."""
    schema = LOAD[direction](api.key, version)
    given: dict[str, Any] = {}
    entity_values: dict[str, Any] = {}
    hints = typing.get_type_hints(schema)
    ours = [f for f in getattr(api, direction) if f.present_in(version)]
    for theirs, f in zip(dataclasses.fields(schema), ours, strict=True):
        if theirs.default is not dataclasses.MISSING:
            continue
        value: Any = f.make_default()
        given[f.name] = value
        if isinstance(value, list):
            entity_values[theirs.name] = ()
        else:
            assert _inner_schema(hints[theirs.name]) is None or value is None
            entity_values[theirs.name] = _to_kio_scalar(theirs.metadata.get("kafka_type"), value)
    theirs_bytes = kio_bytes(schema(**entity_values), 1, "c")
    encode = encode_request if direction == "request" else encode_response
    arguments = (api, version, 1, "c") if direction == "request" else (api, version, 1)
    frame = encode(*arguments, given)[4:]  # type: ignore[operator]
    if api is tables.OFFSET_FOR_LEADER_EPOCH and direction == "request" and version >= 3:
        # Ours is a consumer's -1; Kafka's -2 reads above the high watermark.
        mine, kios = decode_request(frame).body, decode_request(theirs_bytes).body
        assert (mine.pop("replica_id"), kios.pop("replica_id")) == (-1, -2)
        assert mine == kios
        return
    assert frame == theirs_bytes
    assert encode(*arguments, {})[4:] == frame  # type: ignore[operator]


@pytest.mark.parametrize(("api", "version", "direction"), every_message())
def test_null_is_allowed_where_kafkas_schema_allows_it(api: Api, version: int, direction: Direction) -> None:
    def check(schema: Any, fields: tuple[Field, ...]) -> None:
        hints = typing.get_type_hints(schema)
        for theirs, f in zip(dataclasses.fields(schema), [f for f in fields if f.present_in(version)], strict=True):
            if f.type != "uuid":  # None is how kio writes the id of zeros
                assert f.nullable_in(version) == (type(None) in typing.get_args(hints[theirs.name])), f.name
            if f.fields:
                check(_inner_schema(hints[theirs.name]), f.fields)

    check(LOAD[direction](api.key, version), getattr(api, direction))


def test_the_tables_reach_as_far_as_kio_does() -> None:
    """A new version in Kafka is noticed here, once kio has it."""
    for api in tables.ALL:
        for load in LOAD.values():
            for version in (api.min_version, api.max_version):
                load(api.key, version)
            with pytest.raises(UnknownEntity):
                load(api.key, api.max_version + 1)


def test_flexible_versions_start_where_kafkas_do() -> None:
    for api in tables.ALL:
        for version in range(api.min_version, api.max_version + 1):
            assert load_request_schema(api.key, version).__flexible__ == api.is_flexible(version), (api, version)


def test_error_codes_have_kafkas_names_and_are_retriable_where_java_says_so() -> None:
    theirs = {int(code): (code.name.upper(), code.retriable) for code in ErrorCode}
    for code in range(-10, 300):
        name, retriable = theirs.get(code, (f"UNKNOWN_CODE_{code}", False))
        assert (errors.error_name(code), errors.is_retriable(code)) == (name, retriable)
