"""Record, and the Python objects that columns are turned into: bytes, headers, lists of them. All of it copies."""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memset

from fastfetch.kernels.wire cimport *


@cython.final
@cython.no_gc
@cython.freelist(4096)
cdef class Record:
    """One record, independent of the block it came from.

    topic, partition, offset, leader_epoch (of its batch, -1 unknown); timestamp in ms since 1970 with timestamp_type (-1 none, 0 create
    time, 1 log append time); key and value as bytes or None; headers as a list of (str, bytes | None), in order, duplicates kept. A header
    key that is not UTF-8 has its bytes as lone surrogates: `name.encode("utf-8", "surrogateescape")` gives them back.
    """

    def __init__(self):
        raise TypeError("records come from RecordBlock.records(), block[i] or a consumer")

    @property
    def partition(self) -> int:
        return self._partition

    @property
    def leader_epoch(self) -> int:
        return self._leader_epoch

    @property
    def headers(self) -> list:
        if self._headers is None:
            self._headers = []
        return self._headers

    @property
    def serialized_key_size(self) -> int:
        return -1 if self.key is None else len(<bytes>self.key)

    @property
    def serialized_value_size(self) -> int:
        return -1 if self.value is None else len(<bytes>self.value)

    def __repr__(self):
        # Sizes only: records end up in logs through repr, and their bytes may be secret.
        return (f"Record(topic={self.topic!r}, partition={self._partition}, offset={self.offset}, timestamp={self.timestamp}, "
                f"key={self.serialized_key_size} bytes, value={self.serialized_value_size} bytes, headers={len(self.headers)})")

    def __eq__(self, other):
        if not isinstance(other, Record):
            return NotImplemented
        return self.__reduce__() == other.__reduce__()

    def __hash__(self):
        return hash((self.topic, self._partition, self.offset))

    def __reduce__(self):
        return _rebuild_record, (self.topic, self._partition, self.offset, self.timestamp, self.timestamp_type, self.key, self.value,
                                 list(self.headers), self._leader_epoch)


def _rebuild_record(topic, partition, offset, timestamp, timestamp_type, key, value, headers, leader_epoch):
    cdef Record record = Record.__new__(Record)
    record.topic = topic
    record._partition = partition
    record.offset = offset
    record.timestamp = timestamp
    record.timestamp_type = timestamp_type
    record.key = key
    record.value = value
    record._headers = headers
    record._leader_epoch = leader_epoch
    return record


# CPython gives an arena of its object allocator (1 MiB) back to the system as soon as it is empty, so a program that makes and drops a
# large list of values in turn pays for fresh pages every time: 130 ns a value instead of 40. A few placeholders, one an arena, keep
# what was in use mapped; they hold zeros, not record bytes. free_placeholders() lets go of them.
cdef enum:
    PLACEHOLDERS = 64
    PLACEHOLDER_MAX = 448           # larger values don't come from those arenas

cdef list placeholders = [None] * PLACEHOLDERS
cdef Py_ssize_t placed = 0


cdef void place(Py_ssize_t length):
    """Put a placeholder where a value of this length was just put."""
    global placed
    cdef bytes zeros
    if length > PLACEHOLDER_MAX:
        return
    zeros = PyBytes_FromStringAndSize(NULL, length)
    memset(<char *>zeros, 0, <size_t>length)
    placeholders[placed % PLACEHOLDERS] = zeros
    placed += 1


def free_placeholders() -> None:
    """Let CPython give memory back that large lists of values and records had been made in."""
    placeholders[:] = [None] * PLACEHOLDERS


cdef list spans(const uint8_t *origin, const int32_t *starts, const int32_t *lengths, Py_ssize_t n):
    cdef list out = PyList_New(n)
    cdef Py_ssize_t i
    cdef Py_ssize_t made = 0
    cdef object item
    for i in range(n):
        item = span(origin, starts[i], lengths[i])
        Py_INCREF(item)
        PyList_SET_ITEM(out, i, item)
        made += lengths[i] + 48
        if made > PLACEHOLDER_EVERY:
            place(max(lengths[i], 0))
            made = 0
    return out


cdef list read_headers(const uint8_t *at, const uint8_t *end, int32_t count):
    """Headers at `at`: their number, then the pairs. The walk that wrote the columns has proved them."""
    cdef ff_headers headers = ff_headers_at(at, <size_t>(end - at))
    cdef ff_header header
    cdef list out = PyList_New(count)
    cdef int32_t i
    cdef object key, value, pair
    for i in range(count):
        ff_next_header(&headers, &header)
        key = PyUnicode_DecodeUTF8(<const char *>header.key, header.key_bytes, "surrogateescape")
        value = None
        if header.value_bytes >= 0:
            value = PyBytes_FromStringAndSize(<const char *>header.value, header.value_bytes)
        pair = (key, value)
        Py_INCREF(pair)
        PyList_SET_ITEM(out, i, pair)
    return out


cdef void skip_headers(ff_reader *r) noexcept nogil:
    cdef ff_headers headers = ff_headers_at(r.at, ff_left(r))
    cdef ff_header header
    while ff_next_header(&headers, &header):
        pass
    r[0] = headers.r
