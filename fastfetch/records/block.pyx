"""RecordBlock: a run of records as columns over one shared buffer.

A block pins two pieces of memory: `data` (the response, or the arena its batches were inflated into) and the slab of its columns.
Columns are NumPy views made on request; keys(), values(), headers() and records() copy. detach() gives a block that owns just what it
needs.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from cpython.ref cimport Py_INCREF

from fastfetch.kernels.wire cimport *
from fastfetch.records.buffers cimport Buffer, ff_buffer_give, ff_buffer_take, own_buffer
from fastfetch.records.record cimport PLACEHOLDER_EVERY, Record, place, read_headers, skip_headers, span, spans


_numpy = None


cdef object numpy():
    global _numpy
    if _numpy is None:
        import numpy as module
        _numpy = module
    return _numpy


cdef inline const uint8_t *varint_start(const uint8_t *end) noexcept nogil:
    """Where the varint that ends before `end` begins: all its bytes but the last have the high bit."""
    end -= 1
    while (end - 1)[0] & 0x80:
        end -= 1
    return end


@cython.final
cdef class RecordBlock:
    """A run of records as columns. Made by decode(), read_log() and consumers.

    Column arrays are read-only NumPy views without a copy, one element a record: offsets, timestamps (int64, ms since 1970, -1 none),
    timestamp_types (int8: -1 none, 0 create, 1 log append), key_starts, key_lengths, value_starts, value_lengths (int32; starts index
    `data`, length -1 = null), header_counts, leader_epochs (int32). A view, and `data`, keep the block's memory alive.
    """

    def __init__(self):
        raise TypeError("blocks come from fastfetch.decode(), fastfetch.read_log() or a consumer")

    def __len__(self):
        return self.n

    @property
    def data(self) -> memoryview:
        """Read-only bytes that key_starts and value_starts index: the buffer shared by the run, not only this block's records."""
        return self.view[:]

    @property
    def nbytes(self) -> int:
        """Bytes of records and columns that this block's rows stand for (not counting what it shares with other blocks' rows)."""
        cdef Py_ssize_t last = self.first + self.n - 1
        cdef int64_t low, high
        if self.n == 0:
            return 0
        low = self.columns.key_starts[self.first]
        high = <int64_t>self.columns.value_starts[last] + max(self.columns.value_lengths[last], 0)
        return int(high - low) + <Py_ssize_t>ff_slab_bytes(<size_t>self.n)

    @property
    def pinned_bytes(self) -> int:
        """Bytes of memory that stay allocated while this block lives."""
        return len(self.view) + <Py_ssize_t>self.slab.capacity

    @property
    def last_leader_epoch(self) -> int:
        """Leader epoch of the last record's batch, -1 if unknown or the block is empty."""
        return self.columns.leader_epochs[self.first + self.n - 1] if self.n > 0 else -1

    cdef object column(self, str name, const void *start, str dtype, Py_ssize_t width):
        cdef object array
        if self.cache is None:
            self.cache = {}
        array = (<dict>self.cache).get(name)
        if array is None:
            array = numpy().frombuffer(self.slab, dtype=dtype, count=self.n,
                                       offset=<const char *>start - <const char *>self.slab.data + self.first * width)
            (<dict>self.cache)[name] = array
        return array

    @property
    def offsets(self):
        return self.column("offsets", self.columns.offsets, "i8", 8)

    @property
    def timestamps(self):
        return self.column("timestamps", self.columns.timestamps, "i8", 8)

    @property
    def timestamp_types(self):
        return self.column("timestamp_types", self.columns.timestamp_types, "i1", 1)

    @property
    def key_starts(self):
        return self.column("key_starts", self.columns.key_starts, "i4", 4)

    @property
    def key_lengths(self):
        return self.column("key_lengths", self.columns.key_lengths, "i4", 4)

    @property
    def value_starts(self):
        return self.column("value_starts", self.columns.value_starts, "i4", 4)

    @property
    def value_lengths(self):
        return self.column("value_lengths", self.columns.value_lengths, "i4", 4)

    @property
    def header_counts(self):
        return self.column("header_counts", self.columns.header_counts, "i4", 4)

    @property
    def leader_epochs(self):
        return self.column("leader_epochs", self.columns.leader_epochs, "i4", 4)

    def keys(self) -> list:
        """Keys, copied: bytes or None for each record."""
        return spans(self.origin, self.columns.key_starts + self.first, self.columns.key_lengths + self.first, self.n)

    def values(self) -> list:
        """Values, copied: bytes or None for each record."""
        return spans(self.origin, self.columns.value_starts + self.first, self.columns.value_lengths + self.first, self.n)

    cdef int row_magic(self, Py_ssize_t row) noexcept:
        """The format the row was in."""
        if not self.old_first <= row < self.old_end:
            return 2
        return 0 if self.columns.timestamp_types[row] == FF_TIMESTAMP_NONE else 1

    cdef const uint8_t *row_start(self, Py_ssize_t row) noexcept:
        """The row's first byte: its entry's in magic 0 and 1, that of its attributes in magic 2. The walk has proved what is read here."""
        cdef const uint8_t *key = self.origin + self.columns.key_starts[row]
        cdef int magic = self.row_magic(row)
        if magic == 0:
            return key - 4 - FF_MESSAGE_V0_KEY
        if magic == 1:
            return key - 4 - FF_MESSAGE_V1_KEY
        return varint_start(varint_start(varint_start(key))) - 1     # key length, offset delta, timestamp delta; attributes

    cdef const uint8_t *row_end(self, Py_ssize_t row) noexcept:
        """Behind the row's last byte."""
        cdef const uint8_t *value_end = self.origin + self.columns.value_starts[row] + max(self.columns.value_lengths[row], 0)
        cdef ff_reader r
        if self.row_magic(row) < 2:
            return value_end
        r = ff_reader_of(value_end, <size_t>(self.origin + len(self.view) - value_end))
        skip_headers(&r)
        return r.at

    cdef list row_headers(self, Py_ssize_t row):
        cdef const uint8_t *at
        if self.columns.header_counts[row] == 0:
            return []
        at = self.origin + self.columns.value_starts[row] + max(self.columns.value_lengths[row], 0)
        return read_headers(at, self.origin + len(self.view), self.columns.header_counts[row])

    def headers(self) -> list:
        """Headers of each record: a list of (str, bytes | None), in order. A key that is not UTF-8 is decoded with surrogateescape."""
        cdef Py_ssize_t row
        return [self.row_headers(row) for row in range(self.first, self.first + self.n)]

    cdef Record record(self, Py_ssize_t row):
        cdef ff_columns *c = &self.columns
        cdef Record record = Record.__new__(Record)
        record.topic = self.topic
        record._partition = self.partition
        record.offset = c.offsets[row]
        record.timestamp = c.timestamps[row]
        record.timestamp_type = c.timestamp_types[row]
        record._leader_epoch = c.leader_epochs[row]
        record.key = span(self.origin, c.key_starts[row], c.key_lengths[row])
        record.value = span(self.origin, c.value_starts[row], c.value_lengths[row])
        if c.header_counts[row] != 0:
            record._headers = self.row_headers(row)
        return record

    def records(self) -> list:
        """All records as Record objects, each owning its bytes."""
        cdef list out = PyList_New(self.n)
        cdef const int32_t *lengths = self.columns.value_lengths + self.first
        cdef Py_ssize_t i
        cdef Py_ssize_t made = 0
        cdef object record
        for i in range(self.n):
            record = self.record(self.first + i)
            Py_INCREF(record)
            PyList_SET_ITEM(out, i, record)
            made += lengths[i] + 192
            if made > PLACEHOLDER_EVERY:
                place(max(lengths[i], 0))
                made = 0
        return out

    def __iter__(self):
        cdef Py_ssize_t row
        for row in range(self.first, self.first + self.n):
            yield self.record(row)

    def __getitem__(self, index):
        cdef Py_ssize_t i, start, stop, step
        cdef int64_t next_offset
        cdef RecordBlock part
        if isinstance(index, slice):
            start, stop, step = index.indices(self.n)
            if step != 1:
                raise ValueError("a block is sliced without a step; index its columns instead")
            stop = max(start, stop)
            if stop == self.n:
                next_offset = self.next_offset
            elif stop > start:
                next_offset = self.columns.offsets[self.first + stop - 1] + 1
            else:
                next_offset = self.columns.offsets[self.first + start]
            part = make_block(
                self.topic, self.partition, next_offset, self.view, self.slab, self.slab_rows, self.first + start, stop - start)
            part.old_first = self.old_first
            part.old_end = self.old_end
            return part
        i = index
        if i < 0:
            i += self.n
        if not 0 <= i < self.n:
            raise IndexError(f"record {index} of a block of {self.n}")
        return self.record(self.first + i)

    def detach(self) -> RecordBlock:
        """A block with the same records that owns a copy of just their bytes and columns, and pins nothing else."""
        cdef Py_ssize_t last = self.first + self.n - 1
        cdef ff_columns *c = &self.columns
        cdef ff_columns new
        cdef int32_t low = 0
        cdef Py_ssize_t high = 0
        cdef Py_ssize_t row
        cdef size_t capacity = 0
        cdef void *memory
        cdef Buffer slab
        cdef bytes data
        cdef RecordBlock copy
        if self.n > 0:
            low = <int32_t>(self.row_start(self.first) - self.origin)
            high = self.row_end(last) - self.origin
        data = PyBytes_FromStringAndSize(<const char *>self.origin + low, high - low)
        memory = ff_buffer_take(ff_slab_bytes(<size_t>self.n), &capacity)
        if memory == NULL:
            raise MemoryError
        try:
            slab = own_buffer(memory, ff_slab_bytes(<size_t>self.n), capacity)
        except MemoryError:
            ff_buffer_give(memory, capacity)
            raise
        new = ff_columns_of(memory, <size_t>self.n)
        ff_columns_copy(&new, c, <size_t>self.first, <size_t>self.n)
        for row in range(self.n):
            new.key_starts[row] -= low
            new.value_starts[row] -= low
        copy = make_block(self.topic, self.partition, self.next_offset, memoryview(data), slab, <size_t>self.n, 0, self.n)
        copy.old_first = max(self.old_first - self.first, 0)
        copy.old_end = max(self.old_end - self.first, 0)
        return copy

    def __repr__(self):
        if self.n == 0:
            return f"RecordBlock({self.topic!r}, {self.partition}, empty, next_offset={self.next_offset})"
        return (f"RecordBlock({self.topic!r}, {self.partition}, {self.n} records, offsets {self.columns.offsets[self.first]}.."
                f"{self.columns.offsets[self.first + self.n - 1]}, next_offset={self.next_offset})")


cdef RecordBlock make_block(
        object topic, int partition, int64_t next_offset, object view, Buffer slab, size_t slab_rows, Py_ssize_t first, Py_ssize_t n):
    cdef RecordBlock block = RecordBlock.__new__(RecordBlock)
    block.topic = topic
    block.partition = partition
    block.next_offset = next_offset
    block.view = view
    block.origin = <const uint8_t *>PyMemoryView_GET_BUFFER(view).buf
    block.slab = slab
    block.slab_rows = slab_rows
    block.columns = ff_columns_of(slab.data, slab_rows)
    block.first = first
    block.n = n
    return block
