"""The messages a consumer exchanges with brokers, as dicts.

    frame = encode_request(tables.METADATA, 12, correlation_id, "my-app", {"topics": [{"name": "orders"}]})
    correlation_id, body = decode_response(tables.METADATA, 12, answer)

Every API is a table of fields in `tables`; keys of a body are the field names of Kafka's public schemas in snake_case. Both
directions exist for requests and responses, so that a broker in a test speaks with the same tables. Pure functions, no sockets.
"""

from fastfetch.protocol import tables
from fastfetch.protocol.frames import Request, decode_request, decode_response, encode_request, encode_response
from fastfetch.protocol.schema import ZERO_UUID, Api, Field
from fastfetch.protocol.versions import broker_versions, choose_version, retry_api_versions

__all__ = [
    "ZERO_UUID",
    "Api",
    "Field",
    "Request",
    "broker_versions",
    "choose_version",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "retry_api_versions",
    "tables",
]
