"""Another client's view of a record set, batch by batch, over our decoder: `MemoryRecords`, as kafka-python and aiokafka call it.

    records = MemoryRecords(data)            bytes of one partition of a fetch response
    while (batch := records.next_batch()):   None at the end, also before a batch that is cut off
        batch.validate_crc()                 checked when asked for, and only then
        for record in batch: ...             inflated and read at the first of them

What such a client checks for itself stays its business: whether the CRC is right, which batches are markers or aborted.
An adapter makes a subclass that says which errors of its client ours become.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import ClassVar, Self

from fastfetch.adapters.rows import BatchRecord, batch_records
from fastfetch.errors import CorruptBatchError, UnsupportedCodecError
from fastfetch.records.batches import BatchHeader, batches
from fastfetch.records.decode import decode

__all__ = ["MAX_BATCH_BYTES", "Batch", "ControlRecord", "MemoryRecords"]

# The clients have no limit of their own. With more than this, what a block can hold would be full after one batch, and each batch
# would become a block: 70 records at a time, not thousands.
MAX_BATCH_BYTES = 1 << 30

_ATTRIBUTES = 21  # of a magic 2 batch, two bytes
_CONTROL = 0x20
_MARKER = struct.Struct(">hh")  # key of a control record: version, type (KIP-98)


class ControlRecord(BatchRecord):
    """What a control batch holds: the end of a transaction."""

    @property
    def version(self) -> int:
        return int(_MARKER.unpack_from(self.key or b"")[0])

    @property
    def type(self) -> int:
        return int(_MARKER.unpack_from(self.key or b"")[1])

    @property
    def abort(self) -> bool:
        return self.type == 0

    @property
    def commit(self) -> bool:
        return self.type == 1


class Batch:
    """One entry of a record set: a batch of format 2, or a message, compressed or not, of formats 0 and 1.

    Iterates over its records once. Raises the client's own error where its records can't be read, after those before that.
    """

    __slots__ = ("_data", "_errors", "_header", "_left")

    def __init__(self, data: memoryview, header: BatchHeader, errors: type[MemoryRecords]) -> None:
        self._data = data
        self._header = header
        self._errors = errors
        self._left: Iterator[BatchRecord | None] | None = None

    @property
    def magic(self) -> int:
        return self._header.magic

    @property
    def base_offset(self) -> int:
        return self._header.base_offset

    @property
    def last_offset(self) -> int:
        return self._header.last_offset

    @property
    def last_offset_delta(self) -> int:
        return self._header.last_offset - self._header.base_offset

    @property
    def next_offset(self) -> int:
        return self._header.next_offset

    @property
    def leader_epoch(self) -> int:
        return self._header.leader_epoch

    @property
    def size_in_bytes(self) -> int:
        return len(self._data)

    @property
    def crc(self) -> int:
        return self._header.crc

    @property
    def attributes(self) -> int:
        """The lower eight bits; the others have no meaning."""
        return self._data[_ATTRIBUTES + 1] if self.magic == 2 else self._data[17]

    @property
    def compression_type(self) -> int:
        return self.attributes & 7

    @property
    def timestamp_type(self) -> int | None:
        return None if self.magic == 0 else self._header.timestamp_type

    @property
    def first_timestamp(self) -> int:
        return self._header.base_timestamp

    @property
    def max_timestamp(self) -> int:
        return self._header.max_timestamp

    @property
    def producer_id(self) -> int | None:
        return self._header.producer_id

    def has_producer_id(self) -> bool:
        return self._header.producer_id > -1

    @property
    def producer_epoch(self) -> int:
        return self._header.producer_epoch

    @property
    def base_sequence(self) -> int:
        return self._header.base_sequence

    @property
    def is_transactional(self) -> bool:
        return self._header.transactional

    @property
    def is_control_batch(self) -> bool:
        return self._header.control

    @property
    def records_count(self) -> int | None:
        return self._header.count

    def validate_crc(self) -> bool:
        """Is the CRC right?"""
        return bool(next(batches(self._data)).crc_ok)

    def __iter__(self) -> Iterator[BatchRecord | None]:
        if self._left is None:
            self._left = self._records()
        return self._left

    def __next__(self) -> BatchRecord | None:
        """The next record. None once for a control batch without any: a reader asks for its marker by next(batch) in a generator,
        where StopIteration would be an error."""
        return next(iter(self))

    def _records(self) -> Iterator[BatchRecord | None]:
        data: memoryview | bytearray = self._data
        kind: type[BatchRecord] = BatchRecord
        if self.is_control_batch:
            # decode() passes over control batches; as an ordinary one it is read like any other.
            data = bytearray(data)
            data[_ATTRIBUTES + 1] &= ~_CONTROL
            kind = ControlRecord
            if self.records_count == 0:
                yield None
        decoded = decode(data, check_crcs=False, max_batch_bytes=MAX_BATCH_BYTES)
        for block in decoded.blocks:
            yield from batch_records(block, kind)
        if decoded.error is not None:
            raise self._errors.error(decoded.error) from decoded.error


class MemoryRecords:
    """The batches of a record set. The bytes are not copied and must stay as they are; None is an empty set.

    `corrupt` and `unsupported_codec` are the exception classes of the client that it is for.
    """

    corrupt: ClassVar[type[Exception]]
    unsupported_codec: ClassVar[type[Exception]]
    batch: ClassVar[type[Batch]] = Batch

    __slots__ = ("_data", "_next", "_walk")

    def __init__(self, bytes_data: bytes | bytearray | memoryview | None) -> None:
        self._data = memoryview(bytes_data or b"")
        self._walk = batches(self._data, check_crcs=False)
        self._next: BatchHeader | CorruptBatchError | None = None
        self._advance()

    @classmethod
    def error(cls, ours: CorruptBatchError) -> Exception:
        """The client's error for one of ours; to be raised from it."""
        return (cls.unsupported_codec if isinstance(ours, UnsupportedCodecError) else cls.corrupt)(str(ours))

    def _advance(self) -> None:
        try:
            self._next = next(self._walk, None)
        except CorruptBatchError as error:
            self._next = error

    def size_in_bytes(self) -> int:
        """Bytes of the whole set, a cut-off batch at its end included."""
        return len(self._data)

    def valid_bytes(self) -> int:
        """Bytes of whole batches."""
        end = 0
        try:
            for header in batches(self._data, check_crcs=False):
                end = header.byte_pos + header.size
        except CorruptBatchError:
            pass
        return end

    def unread(self) -> memoryview:
        """The bytes from the batch on that next_batch() would give now."""
        return self._data[len(self._data) if self._next is None else self._next.byte_pos :]

    def has_next(self) -> bool:
        """Is there another whole batch, or one that can't be read?"""
        return self._next is not None

    def next_batch(self) -> Batch | None:
        """The next batch, None at the end. Raises `corrupt` where length or format of one make no sense, again and again."""
        header = self._next
        if header is None:
            return None
        if isinstance(header, CorruptBatchError):
            raise self.error(header) from header
        self._advance()
        return self.batch(self._data[header.byte_pos : header.byte_pos + header.size], header, type(self))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        batch = self.next_batch()
        if batch is None:
            raise StopIteration
        return batch
