"""aiokafka over fastfetch's decoder: one line, and its consumers deliver the same records two to three times as fast.

    import fastfetch.adapters.aiokafka

    fastfetch.adapters.aiokafka.install()

The consumer, its connections, groups, positions, commits, deserializers, records and exceptions stay aiokafka's. What bytes are
good and which are corrupt is fastfetch's decision. Seam "reader" rebinds these, which aiokafka looks up whenever it uses them:

    aiokafka.consumer.fetcher.MemoryRecords     the bytes of one partition in a response
    aiokafka.consumer.fetcher.PartitionRecords  the iterator over their records
    FetchResult.getall                          a slice of records at once, instead of one at a time
    Fetcher._proc_fetch_request                 a large response is decoded in a thread before the fetcher looks at it

and seam "decoder" the first alone: batches are split and decoded here, and aiokafka makes the records. FetchResult itself stays
what it is: the fetcher compares the type of what it has buffered with it, and would take older results for errors. Consumers that
exist already go on with their next response.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Literal

import aiokafka  # type: ignore[import-untyped, unused-ignore]
import aiokafka.codec  # type: ignore[import-untyped, unused-ignore]
import aiokafka.errors  # type: ignore[import-untyped, unused-ignore]
from aiokafka.consumer import fetcher  # type: ignore[import-untyped, unused-ignore]
from aiokafka.consumer.fetcher import FetchResult  # type: ignore[import-untyped, unused-ignore]
from aiokafka.structs import ConsumerRecord  # type: ignore[import-untyped, unused-ignore]

from fastfetch.adapters import memory_records
from fastfetch.adapters.data_objects import data_objects_of
from fastfetch.adapters.memory_records import MAX_BATCH_BYTES
from fastfetch.adapters.rebinding import Installed, Rebinding, check_parameters
from fastfetch.errors import CorruptBatchError
from fastfetch.records.batches import BatchHeader, batches
from fastfetch.records.block import RecordBlock
from fastfetch.records.decode import Decoded, decode

__all__ = ["KNOWN_VERSIONS", "DefaultRecordBatch", "FetchResult", "MemoryRecords", "PartitionRecords", "install", "uninstall"]

KNOWN_VERSIONS = ("0.10", "0.11", "0.12", "0.13", "0.14")

# Decoding on a thread pays from about a millisecond on. Compressed bytes take that much longer than others.
_THREAD_BYTES = 4 << 20
_COMPRESSED_WEIGHT = 16

# What a response may become ahead of being asked for. The rest is decoded on the event loop as it is needed, so much at a time.
_AHEAD_BYTES = 64 << 20
_PIECE_BYTES = 2 << 20

# Records made at once where they are taken one by one.
_CHUNK = 256

_Isolation = Literal["read_uncommitted", "read_committed"]
_ISOLATION: tuple[_Isolation, _Isolation] = ("read_uncommitted", "read_committed")  # by aiokafka's number

_NOTHING = memoryview(b"")

_TheirPartitionRecords = fetcher.PartitionRecords


class DefaultRecordBatch(memory_records.Batch):
    """Stands for aiokafka.record.default_records.DefaultRecordBatch, and for the class of the old formats."""

    CODEC_MASK = 0x07
    CODEC_NONE, CODEC_GZIP, CODEC_SNAPPY, CODEC_LZ4, CODEC_ZSTD = range(5)

    __slots__ = ()

    def __init__(
        self,
        buffer: bytes | bytearray | memoryview,
        header: BatchHeader | None = None,
        errors: type[memory_records.MemoryRecords] | None = None,
    ) -> None:
        super().__init__(memoryview(buffer), header or next(batches(buffer, check_crcs=False)), errors or MemoryRecords)

    @property
    def producer_id(self) -> int | None:
        """None in the old formats; -1: the producer is not idempotent."""
        return self._header.producer_id if self.magic == 2 else None

    def _records(self) -> Iterator[Any]:
        # We could go on without its libraries, but a program that reads batches by itself may count on the error.
        name = (None, "gzip", "snappy", "lz4", "zstd", None, None, None)[self.compression_type]
        if name is not None and not getattr(aiokafka.codec, f"has_{name}")():
            raise aiokafka.errors.UnsupportedCodecError(f"Libraries for {name} compression codec not found")
        records = super()._records()
        return filter(None, records) if self.is_control_batch else records  # an empty one's None ends it here


class MemoryRecords(memory_records.MemoryRecords):
    """Stands for aiokafka.record.MemoryRecords: the bytes of one partition in a response. None, a null record set, is empty.

    `decoded` is what has been made of them already, for PartitionRecords.
    """

    corrupt = aiokafka.errors.CorruptRecordException
    unsupported_codec = aiokafka.errors.UnsupportedCodecError
    batch = DefaultRecordBatch

    __slots__ = ("decoded",)

    def __init__(self, bytes_data: bytes | bytearray | memoryview | MemoryRecords | None) -> None:
        self.decoded: Decoded | None = None
        if isinstance(bytes_data, MemoryRecords):
            self.decoded = bytes_data.decoded
            bytes_data = bytes_data.unread()
        super().__init__(bytes_data)


class PartitionRecords:
    """Stands for aiokafka.consumer.fetcher.PartitionRecords: the consumer records of one partition in a response.

    Records are made when they are asked for, and deserialized when they are handed out. next_fetch_offset is the last one's
    offset + 1; once they have run out, the end that the last batch names.
    """

    def __new__(cls, tp: Any, records: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(records, MemoryRecords):
            return _TheirPartitionRecords(tp, records, *args, **kwargs)  # these come from the peer's own decoder
        return super().__new__(cls)

    def __init__(
        self,
        tp: Any,
        records: MemoryRecords,
        aborted_transactions: list[tuple[int, int]] | None,
        fetch_offset: int,
        key_deserializer: Callable[[bytes | None], Any] | None,
        value_deserializer: Callable[[bytes | None], Any] | None,
        check_crcs: bool,
        isolation_level: int,
    ) -> None:
        self.next_fetch_offset = fetch_offset
        self._topic: str = tp.topic
        self._partition: int = tp.partition
        self._key_of = key_deserializer
        self._value_of = value_deserializer
        self._check_crcs = check_crcs
        self._isolation = _ISOLATION[isolation_level]
        self._aborted = aborted_transactions
        self._data = records.unread()
        self._blocks: deque[RecordBlock] = deque()
        self._made: list[Any] = []  # made and not handed out, the next one last
        self._end = fetch_offset  # where to fetch next, once all blocks have been handed out
        self._finished = False  # nothing of the data is left to decode
        self._error: Exception | None = None  # raised once what precedes it has been handed out
        if records.decoded is not None:
            self._accept(records.decoded)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if not self._made:
            self._made = self._part(_CHUNK)[::-1]
            if not self._made:
                self._stop()
                raise StopIteration
        record = self._made.pop()
        try:
            self._deserialize(record)
        except BaseException:
            self._drop(None)
            raise
        self.next_fetch_offset = record.offset + 1
        return record

    def take(self, limit: int | None) -> tuple[list[Any], bool]:
        """Up to `limit` records (None: all), and whether that is the end.

        Raises the exceptions of the deserializers; CorruptRecordException or UnsupportedCodecError, from fastfetch's own, where a
        batch can't be read. Records before that are returned first, and the next call raises.
        """
        part = self._part(limit)
        ended = not self._made and not self._blocks and self._finished and (limit is None or len(part) < limit)
        if not self._key_of and not self._value_of:
            out = part
            if out:
                self.next_fetch_offset = out[-1].offset + 1
        else:
            out = []
            for record in part:
                try:
                    self._deserialize(record)
                except Exception as error:
                    self._drop(error)
                    ended = True
                    break
                out.append(record)
                self.next_fetch_offset = record.offset + 1
        if not ended or (out and self._error is not None):
            return out, False
        self._stop()
        return out, True

    def _part(self, limit: int | None) -> list[Any]:
        """The next records, not deserialized, at most `limit`. Fewer: the data has run out."""
        if limit is None:
            limit = sys.maxsize
        made = self._made[::-1][:limit]
        del self._made[len(self._made) - len(made) :]
        blocks: list[RecordBlock] = []
        room = limit - len(made)
        while room > 0 and self._has_block():
            block = self._blocks.popleft()
            if len(block) > room:
                self._blocks.appendleft(block[room:])
                block = block[:room]
            blocks.append(block)
            room -= len(block)
        more = data_objects_of(blocks, ConsumerRecord)
        return made + more if made else more

    def _has_block(self) -> bool:
        while not self._blocks and not self._finished:
            self._accept(
                decode(
                    self._data,
                    position=self._end,
                    isolation=self._isolation,
                    aborted=self._aborted,
                    check_crcs=self._check_crcs,
                    max_batch_bytes=MAX_BATCH_BYTES,
                    max_bytes=_PIECE_BYTES,
                    topic=self._topic,
                    partition=self._partition,
                )
            )
        return bool(self._blocks)

    def _accept(self, decoded: Decoded) -> None:
        self._blocks.extend(block for block in decoded.blocks if len(block) > 0)
        if decoded.next_offset is not None:
            self._end = decoded.next_offset
        if decoded.error is not None:
            self._error = MemoryRecords.error(decoded.error)
            self._error.__cause__ = decoded.error
        self._finished = decoded.error is not None or not MemoryRecords(self._data[decoded.consumed :]).has_next()
        if self._finished:
            self._data = _NOTHING

    def _deserialize(self, record: Any) -> None:
        if self._key_of:
            record.key = self._key_of(record.key)
        if self._value_of:
            record.value = self._value_of(record.value)

    def _stop(self) -> None:
        """At the end: the position goes behind what was passed over, and an error is raised, once."""
        self.next_fetch_offset = self._end
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _drop(self, error: Exception | None) -> None:
        """A deserializer has failed. The rest is not handed out: it will be fetched again."""
        self._error = error
        self._end = self.next_fetch_offset
        self._finished = True
        self._data = _NOTHING
        self._blocks.clear()
        self._made.clear()


# --- decoding a large response in a thread ----------------------------------------------------------------------------


def _weight(data: bytes) -> int:
    """About how many uncompressed bytes take as long to decode."""
    try:
        first = next(batches(data, check_crcs=False), None)
    except CorruptBatchError:
        return 0
    if first is None:
        return 0
    return len(data) if first.codec == "none" else len(data) * _COMPRESSED_WEIGHT


async def _decode_ahead(their_fetcher: Any, request: Any, response: Any) -> None:
    """If the response is large, decode it in a thread, and put what comes of it into the response in place of the bytes."""
    record_sets = [part[-1] for _, partitions in response.topics for part in partitions if part[-1]]
    if sum(map(_weight, record_sets)) < _THREAD_BYTES:
        return
    positions = {(topic, part[0]): part[1] for topic, partitions in request.topics for part in partitions}
    version = response.API_VERSION
    check_crcs = their_fetcher._check_crcs
    isolation = _ISOLATION[their_fetcher._isolation_level]
    topics = [(topic, [(*part[:-1], MemoryRecords(part[-1])) for part in partitions]) for topic, partitions in response.topics]

    def work() -> None:
        room = _AHEAD_BYTES
        for topic, partitions in topics:
            for part in partitions:
                records = part[-1]
                if records.has_next() and room > 0:
                    records.decoded = decode(
                        records.unread(),
                        position=positions[topic, part[0]],
                        isolation=isolation,
                        aborted=part[-3] if version >= 11 else part[-2] if version >= 4 else (),
                        check_crcs=check_crcs,
                        max_batch_bytes=MAX_BATCH_BYTES,
                        max_bytes=room,
                        topic=topic,
                        partition=part[0],
                    )
                    room -= sum(block.nbytes for block in records.decoded.blocks)

    await _in_thread(work)
    if fetcher.MemoryRecords is MemoryRecords:  # else uninstalled meanwhile
        response.topics = topics


async def _in_thread(work: Callable[[], None]) -> None:
    """Run `work` in a thread of its own and wait for it.

    Not in the loop's executor: its threads may all be busy with the program's own work, or wait for the very records that are to
    be decoded. If the waiting is cancelled (the consumer stops, or partitions are taken away) the thread finishes what nobody
    will look at; it touches nothing but the response. What it could not do is done on the event loop instead.
    """
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def settle() -> None:
        if not done.cancelled():
            done.set_result(None)

    def run() -> None:
        with contextlib.suppress(Exception):  # it will fail again where somebody can be told
            work()
        with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
            loop.call_soon_threadsafe(settle)

    try:
        threading.Thread(target=run, name="fastfetch-decode").start()
    except RuntimeError:  # no thread to be had
        return
    await done


class _Receiving:
    """A fetcher as its _proc_fetch_request() sees it: the same, except that what its client receives has been decoded."""

    def __init__(self, their_fetcher: Any) -> None:
        vars(self)["_theirs"] = their_fetcher
        vars(self)["_client"] = _DecodingClient(their_fetcher)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._theirs, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._theirs, name, value)


class _DecodingClient:
    def __init__(self, their_fetcher: Any) -> None:
        self._fetcher = their_fetcher

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fetcher._client, name)

    async def send(self, node_id: Any, request: Any) -> Any:
        response = await self._fetcher._client.send(node_id, request)
        await _decode_ahead(self._fetcher, request, response)
        return response


# --- installing -------------------------------------------------------------------------------------------------------


def _getall_of(theirs: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    @functools.wraps(theirs)
    def getall(self: Any, max_records: int | None = None) -> list[Any]:
        records = self._partition_records
        if not isinstance(records, PartitionRecords):  # made before install()
            return theirs(self, max_records)
        if not self.check_assignment(self._topic_partition):
            return []
        out, ended = records.take(max_records)
        self._update_position()
        if ended:
            self._partition_records = None
        return out

    return getall


def _proc_fetch_request_of(theirs: Callable[..., Coroutine[Any, Any, bool]]) -> Callable[..., Coroutine[Any, Any, bool]]:
    @functools.wraps(theirs)
    async def _proc_fetch_request(self: Any, assignment: Any, node_id: Any, request: Any) -> bool:
        return await theirs(_Receiving(self), assignment, node_id, request)

    return _proc_fetch_request


def _names(seam: str) -> Iterator[tuple[Any, str, Any]]:
    reader = (
        "self", "tp", "records", "aborted_transactions", "fetch_offset", "key_deserializer", "value_deserializer", "check_crcs",
        "isolation_level",
    )  # fmt: skip
    check_parameters("aiokafka", fetcher.PartitionRecords.__init__, reader)
    check_parameters("aiokafka", FetchResult.__init__, ("self", "tp", "assignment", "partition_records", "backoff"))
    check_parameters("aiokafka", FetchResult.getall, ("self", "max_records"))
    check_parameters("aiokafka", fetcher.Fetcher._proc_fetch_request, ("self", "assignment", "node_id", "request"))
    yield fetcher, "MemoryRecords", MemoryRecords
    if seam == "decoder":
        return
    yield fetcher, "PartitionRecords", PartitionRecords
    yield FetchResult, "getall", _getall_of(FetchResult.getall)
    yield fetcher.Fetcher, "_proc_fetch_request", _proc_fetch_request_of(fetcher.Fetcher._proc_fetch_request)


_rebinding = Rebinding("aiokafka", KNOWN_VERSIONS, ("reader", "decoder"), _names)


def install(seam: str = "reader") -> Installed:
    """Make aiokafka's consumers deliver through fastfetch, from their next response on.

    Returns a context manager; without `with` it lasts until uninstall(). Does nothing if that seam is installed. Raises
    UsageError and changes nothing for a version of aiokafka that is not in KNOWN_VERSIONS, if somebody else has changed what is
    to be rebound, or if the other seam is installed; ValueError for an unknown seam.
    """
    return _rebinding.install(seam, aiokafka.__version__)


def uninstall() -> None:
    """Give aiokafka its own decoder back; does nothing if nothing is installed. What has arrived is still delivered by ours."""
    _rebinding.uninstall()
