"""A record as a line of JSON: what the examples print."""

from __future__ import annotations

import base64
import json

import fastfetch


def line(record: fastfetch.Record, **where: object) -> str:
    """Bytes that are not UTF-8 are {"base64": …}; headers are there if there are any."""
    fields = {
        **where,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": text(record.key),
        "value": text(record.value),
    }
    if record.headers:
        fields["headers"] = [[key, text(value)] for key, value in record.headers]
    return json.dumps(fields) + "\n"


def text(data: bytes | None) -> object:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data or b"").decode()}
