"""What decode_proxy.py and decode_capture.py share: the bytes of a connection between a client and a broker, watched from
outside, become the answers to fetches, decoded.

A broker answers in the order of the requests of a connection, but for those that want no answer (a producer's with acks=0).
An answer begins with the correlation id of its request, and nothing in it says what it is: which API and version, which
isolation level and which offsets were asked for has to be kept from the request. With a fetch session (KIP-227) a request
names only what has changed, so offsets are kept per connection as well. From version 13 on a fetch names topics by id; the
names are in the answers to Metadata requests that pass by.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import fastfetch
from fastfetch.protocol import decode_request, decode_response, tables

LARGEST = 256 << 20  # of a frame. What announces more is not Kafka's protocol, or not a beginning
MOST = 256 << 20  # that the records of one partition of one answer may inflate to here
UNANSWERED = 1000  # requests of a connection that are remembered: answers may be missing

WATCHED = {api.key: api for api in (tables.FETCH, tables.METADATA)}


class NotKafkaError(Exception):
    """These bytes are no frames: perhaps TLS, perhaps the middle of something."""


class Frames:
    """A stream cut into frames. `wanted` is asked with the first bytes of each; those it declines are not kept."""

    def __init__(self, first_bytes: int, wanted: Callable[[bytes], bool]) -> None:
        self._first_bytes, self._wanted = first_bytes, wanted
        self.restart()

    def restart(self) -> None:
        """The next byte is the first of a frame."""
        self._start = bytearray()  # size and first bytes of a frame
        self._left = -1  # bytes of it that are still to come; -1: its first bytes are not complete
        self._frame: bytearray | None = None

    def feed(self, data: bytes | memoryview) -> Iterator[bytearray]:
        """The wanted frames that end in `data`, without their sizes. Raises NotKafkaError."""
        data = memoryview(data)
        while data:
            if self._left < 0:
                data = self._read_start(data)
            if self._left >= 0:
                piece, data = data[: self._left], data[self._left :]
                self._left -= len(piece)
                if self._frame is not None:
                    self._frame += piece
                if not self._left:
                    frame = self._frame
                    self.restart()
                    if frame is not None:
                        yield frame

    def _read_start(self, data: memoryview) -> memoryview:
        for _ in range(2):  # the size tells how much more is wanted
            size = int.from_bytes(self._start[:4], "big", signed=True) if len(self._start) >= 4 else None
            if size is not None and not 0 <= size <= LARGEST:
                raise NotKafkaError(f"a frame of {size} bytes")
            wanted = 4 if size is None else 4 + min(self._first_bytes, size)
            piece = wanted - len(self._start)
            self._start += data[:piece]
            data = data[piece:]
        if size is not None and len(self._start) == wanted:
            first = bytes(self._start[4:])
            self._left = size - len(first)
            self._frame = bytearray(first) if self._wanted(first) else None
        return data


@dataclass(frozen=True)
class Exchange:
    """A request and its answer, as frames without their sizes."""

    api: int
    request: bytearray
    answer: bytearray


@dataclass(frozen=True)
class Fetched:
    """What an answer brought of one partition."""

    topic: str
    answer: fastfetch.FetchedPartition
    position: int | None  # the offset that was asked for; None: it was not seen
    decoded: fastfetch.Decoded | None  # None: no records

    @property
    def looked_at_all(self) -> bool:
        """False: the records inflate to so much that only a part was decoded."""
        if self.decoded is None or self.decoded.error is not None or self.answer.records is None:
            return True
        rest = self.answer.records[self.decoded.consumed :]
        return next(fastfetch.batches(rest, check_crcs=False), None) is None  # a batch that is cut off is normal


class Conversation:
    """One connection, from its beginning or from any frame on. `requests` and `answers` may be called by two threads."""

    def __init__(self) -> None:
        self._requests = Frames(8, lambda first: len(first) == 8 and int.from_bytes(first[:2], "big") in WATCHED)
        self._answers = Frames(4, lambda first: first in self._pending)
        self._pending: dict[bytes, bytearray] = {}  # requests by correlation id
        self._offsets: dict[tuple[str | bytes, int], int] = {}  # of the fetch session

    def requests(self, data: bytes | memoryview) -> None:
        """Bytes from the client, before the broker can answer them. Raises NotKafkaError."""
        for frame in self._requests.feed(data):
            self._pending[bytes(frame[4:8])] = frame
            if len(self._pending) > UNANSWERED:
                del self._pending[next(iter(self._pending))]

    def answers(self, data: bytes | memoryview) -> Iterator[Exchange]:
        """Bytes from the broker. Raises NotKafkaError."""
        for frame in self._answers.feed(data):
            request = self._pending.pop(bytes(frame[:4]), None)
            if request is not None:
                yield Exchange(int.from_bytes(request[:2], "big"), request, frame)

    def lost(self, *, requests: bool) -> None:
        """Bytes are missing: the next ones given to `requests`, or `answers`, are the beginning of a frame."""
        (self._requests if requests else self._answers).restart()

    def is_request(self, data: bytes) -> bool:
        """Does a request begin here? By size, api key, version and client id: enough for the first bytes of a packet."""
        if len(data) < 14:
            return False
        size, api, version, _, length = struct.unpack_from(">ihhih", data)
        name = data[14 : 14 + max(length, 0)]
        return 10 <= size <= LARGEST and 0 <= api < 200 and 0 <= version < 40 and -1 <= length <= size - 10 and name.isascii()

    def is_answer(self, data: bytes) -> bool:
        """Does the answer to a request that was seen begin here?"""
        return len(data) >= 8 and 4 <= int.from_bytes(data[:4], "big", signed=True) <= LARGEST and data[4:8] in self._pending

    def read(self, exchange: Exchange, names: dict[bytes, str]) -> Iterator[Fetched]:
        """What an exchange brought; `names` of topics are added to. In the order of the answers, by one thread at a time.

        Raises fastfetch.errors.ProtocolError and UnsupportedVersionError (of clients older than Kafka 0.11).
        """
        request = decode_request(exchange.request, allow_left_over=True)
        if request.api is tables.METADATA:
            _, body = decode_response(tables.METADATA, request.version, exchange.answer)
            names |= {topic["topic_id"]: topic["name"] for topic in body["topics"] if topic.get("topic_id") and topic["name"]}
            return
        answer = fastfetch.read_fetch_response(exchange.answer, request.version)
        for topic in request.body["topics"]:
            for asked in topic["partitions"]:
                self._offsets[topic.get("topic") or topic["topic_id"], asked["partition"]] = asked["fetch_offset"]
        committed = request.body["isolation_level"] == 1
        for partition in answer.partitions:
            key = partition.topic if partition.topic is not None else partition.topic_id
            assert key is not None
            topic_name = key if isinstance(key, str) else names.get(key, key.hex())
            position = self._offsets.get((key, partition.partition))
            decoded = None
            if partition.records:
                decoded = fastfetch.decode(
                    partition.records,
                    position=position if position is not None and position >= 0 else None,
                    isolation="read_committed" if committed else "read_uncommitted",
                    aborted=partition.aborted,
                    max_bytes=MOST,
                    topic=topic_name,
                    partition=partition.partition,
                )
            yield Fetched(topic_name, partition, position, decoded)
