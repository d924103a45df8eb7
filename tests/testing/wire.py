"""A client of one connection: requests as dicts, answers as dicts or raw frames."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any, Self

from fastfetch.protocol import decode_response, encode_request, tables
from fastfetch.testing import Broker
from fastfetch.testing.writing import WRITING_APIS

BY_NAME = {api.name: api for api in (*tables.ALL, *WRITING_APIS.values())}


class Wire:
    """Use as a context manager. `call` for question and answer, `send` and `receive` apart for everything odd."""

    def __init__(self, broker: Broker | tuple[str, int], node: int = 1) -> None:
        address = broker.address(node) if isinstance(broker, Broker) else broker
        self.socket = socket.create_connection(address, timeout=10)
        self.input = self.socket.makefile("rb")
        self.sent = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.input.close()
        self.socket.close()

    def send(self, api: str, version: int, **body: Any) -> int:
        self.sent += 1
        self.socket.sendall(encode_request(BY_NAME[api], version, self.sent, "wire", body))
        return self.sent

    def receive(self) -> bytes:
        """The next frame without its size; b"" where the connection ends."""
        head = self.input.read(4)
        if len(head) < 4:
            return b""
        return self.input.read(struct.unpack(">i", head)[0])

    def call(self, api: str, version: int, **body: Any) -> dict[str, Any]:
        self.send(api, version, **body)
        return self.read(api, version)

    def read(self, api: str, version: int) -> dict[str, Any]:
        """The answer to what was sent last."""
        correlation_id, answer = decode_response(BY_NAME[api], version, self.receive())
        assert correlation_id == self.sent
        return answer

    # ------------------------------------------------------------------------------------------------------------ shorthands

    def fetch(
        self,
        topic: str | bytes = "t",
        offset: int = 0,
        *,
        version: int = 12,
        partition: int = 0,
        partition_max_bytes: int = 1 << 20,
        wait: int = 0,
        session: tuple[int, int] = (0, -1),
        epoch: int = -1,
        last_epoch: int = -1,
        **more: Any,
    ) -> dict[str, Any]:
        """The whole answer to a fetch of one partition; a topic's id for version 13 and later."""
        fields = {
            "partition": partition,
            "fetch_offset": offset,
            "partition_max_bytes": partition_max_bytes,
            "current_leader_epoch": epoch,
            "last_fetched_epoch": last_epoch,
        }
        if last_epoch < 0 or version < 12:
            del fields["last_fetched_epoch"]
        return self.fetch_all([(topic, [fields])], version=version, wait=wait, session=session, **more)

    def fetch_all(
        self,
        topics: list[tuple[str | bytes, list[dict[str, Any]]]],
        *,
        version: int = 12,
        wait: int = 0,
        session: tuple[int, int] = (0, -1),
        **more: Any,
    ) -> dict[str, Any]:
        asked = [{"topic" if isinstance(t, str) else "topic_id": t, "partitions": ps} for t, ps in topics]
        body = {"max_wait_ms": wait, "min_bytes": 1, "max_bytes": 50 << 20, "topics": asked} | more
        if version >= 7:
            body |= {"session_id": session[0], "session_epoch": session[1]}
        return self.call("Fetch", version, **body)


def only(answer: dict[str, Any]) -> dict[str, Any]:
    """The one partition of an answer that has one."""
    topics = answer.get("responses") or answer["topics"]
    (topic,) = topics
    (partition,) = topic["partitions"]
    return dict(partition)
