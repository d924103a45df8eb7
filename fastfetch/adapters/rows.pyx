"""Blocks into the record objects of other clients, without a call of Python code a record."""

cimport cython
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM

from fastfetch.kernels.wire cimport *
from fastfetch.records.block cimport RecordBlock
from fastfetch.records.record cimport PLACEHOLDER_EVERY, place, span


cdef extern from *:
    """
    static PyObject *ff_new(PyTypeObject *kind, PyObject *nothing) { return kind->tp_new(kind, nothing, NULL); }
    """
    object ff_new(PyTypeObject *kind, PyObject *nothing)


cdef extern from "Python.h":
    object PyType_GenericAlloc(PyTypeObject *kind, Py_ssize_t items)
    void PyObject_GC_UnTrack(PyObject *op)
    bint PyObject_IS_GC(object op)


FIELDS = (
    "topic", "partition", "leader_epoch", "offset", "timestamp", "timestamp_type", "key", "value", "headers", "checksum",
    "serialized_key_size", "serialized_value_size", "serialized_header_size")


cdef inline void put(object row, Py_ssize_t i, object item):
    Py_INCREF(item)                      # PyTuple_SET_ITEM steals one
    PyTuple_SET_ITEM(row, i, item)


cdef int64_t header_bytes(RecordBlock block, Py_ssize_t row) noexcept:
    """Bytes of a row's header keys and values."""
    cdef ff_headers headers = ff_headers_of(&block.columns, <size_t>row, block.origin, <size_t>len(block.view))
    cdef ff_header header
    cdef int64_t sum = 0
    while ff_next_header(&headers, &header):
        sum += header.key_bytes + max(header.value_bytes, 0)
    return sum


cdef object checksum(RecordBlock block, Py_ssize_t row):
    """The CRC that a message of the formats before 0.11 has of its own."""
    if block.row_magic(row) == 2:
        return None
    return ff_load32(block.row_start(row) + FF_MESSAGE_CRC)


@cython.final
cdef class OfData:
    """A deserializer that wants the bytes and nothing else: called as `function(bytes | None)` in append_named_tuples()."""

    cdef object function

    def __init__(self, function):
        self.function = function

    def __call__(self, topic, headers, data):
        return self.function(data)


cdef inline bint is_simple(object deserializer, object made):
    """Nothing leads from what it made back to the record: it is as it came, or of a type that refers to nothing."""
    return deserializer is None or (isinstance(deserializer, OfData) and not PyObject_IS_GC(made))


cdef inline object deserialized(object deserializer, str topic, object headers, object data):
    if isinstance(deserializer, OfData):
        return (<OfData>deserializer).function(data)
    return deserializer(topic, headers, data)


cdef int append_rows(list out, RecordBlock block, type kind, str topic, object key_of, object value_of) except -1:
    cdef ff_columns *c = &block.columns
    cdef const uint8_t *origin = block.origin
    cdef object partition = block.partition
    cdef object epoch = None
    cdef object none_size = -1
    cdef int32_t last_epoch = 0
    cdef Py_ssize_t row
    cdef Py_ssize_t made = 0
    cdef int32_t key_length, value_length
    cdef object offset, timestamp, timestamp_type, key, value, headers, crc, key_size, value_size, headers_size, record
    if not issubclass(kind, tuple) or getattr(kind, "_fields", None) != FIELDS:
        raise TypeError(f"kind must be a tuple class with the fields of kafka-python's ConsumerRecord; got {kind!r}")
    for row in range(block.first, block.first + block.n):
        if epoch is None or c.leader_epochs[row] != last_epoch:
            last_epoch = c.leader_epochs[row]
            epoch = last_epoch
        if c.timestamp_types[row] == FF_TIMESTAMP_NONE:
            timestamp = timestamp_type = None
        else:
            timestamp = c.timestamps[row]
            timestamp_type = c.timestamp_types[row]
        offset = c.offsets[row]
        key_length = c.key_lengths[row]
        value_length = c.value_lengths[row]
        key = span(origin, c.key_starts[row], key_length)
        value = span(origin, c.value_starts[row], value_length)
        key_size = key_length
        value_size = value_length
        headers = block.row_headers(row)
        if c.header_counts[row] == 0:
            headers_size = none_size
        else:
            headers_size = header_bytes(block, row)
        if key_of is not None:
            key = deserialized(key_of, topic, headers, key)
        if value_of is not None:
            value = deserialized(value_of, topic, headers, value)
        crc = checksum(block, row)
        record = PyType_GenericAlloc(<PyTypeObject *>kind, 13)
        if is_simple(key_of, key) and is_simple(value_of, value):
            # Bytes and numbers, and a list of such: nothing leads back here, unless somebody puts the record into its own headers. The
            # garbage collector would look at each again and again.
            PyObject_GC_UnTrack(<PyObject *>record)
            PyObject_GC_UnTrack(<PyObject *>headers)
        put(record, 0, topic)
        put(record, 1, partition)
        put(record, 2, epoch)
        put(record, 3, offset)
        put(record, 4, timestamp)
        put(record, 5, timestamp_type)
        put(record, 6, key)
        put(record, 7, value)
        put(record, 8, headers)
        put(record, 9, crc)
        put(record, 10, key_size)
        put(record, 11, value_size)
        put(record, 12, headers_size)
        out.append(record)
        made += value_length + 256
        if made > PLACEHOLDER_EVERY:
            place(max(value_length, 0))
            made = 0
    return 0


def named_tuples(RecordBlock block not None, type kind not None, str topic not None) -> list:
    """The block's records as tuples of the class `kind`, which has the thirteen fields of kafka-python's ConsumerRecord.

    As that client has them: timestamp and its type None in format 0; checksum the message's CRC in formats 0 and 1, else None; sizes -1
    where there is nothing; headers a list of (str, bytes | None), keys that are not UTF-8 with surrogateescape. `kind.__new__` is not
    called. Raises TypeError if `kind` has other fields.
    """
    cdef list out = []
    append_rows(out, block, kind, topic, None, None)
    return out


def append_named_tuples(
        list out not None, RecordBlock block not None, type kind not None, str topic not None, key=None, value=None) -> None:
    """named_tuples(), appended to `out`. `key` and `value`, if given, are called as f(topic, headers, bytes | None) for what the record has
    instead, an OfData with the bytes alone; what they raise passes through, and the records before that one are in `out`."""
    append_rows(out, block, kind, topic, key, value)


def serialized_bytes(RecordBlock block not None) -> int:
    """The records' size before compression in bytes, as kafka-python counts it: with their own fields and headers; in format 2 without
    the length in front, in formats 0 and 1 with the whole message header."""
    cdef int64_t sum = 0
    cdef Py_ssize_t row
    for row in range(block.first, block.first + block.n):
        sum += block.row_end(row) - block.row_start(row)
    return sum


cdef tuple NOTHING = ()


@cython.freelist(64)
cdef class BatchRecord:
    """A record as it comes out of another client's batch: with its size in bytes and a CRC to ask for, and not yet a consumer's record."""

    cdef readonly object offset, timestamp, timestamp_type, key, value, headers, checksum, size_in_bytes

    def validate_crc(self) -> bool:
        """The batch's CRC covers its records, and a message of the old formats is its own batch."""
        return True

    def __repr__(self):
        return (f"BatchRecord(offset={self.offset}, timestamp={self.timestamp}, key={size_text(self.key)}, value={size_text(self.value)}, "
                f"headers={len(self.headers)})")


cdef str size_text(object data):
    return "null" if data is None else f"{len(data)} bytes"


def batch_records(RecordBlock block not None, type kind not None) -> list:
    """The block's records as objects of `kind`, BatchRecord or a subclass. Header keys that are not UTF-8 have replacement characters: a
    client that encodes them again to count bytes would fail at surrogates."""
    cdef ff_columns *c = &block.columns
    cdef Py_ssize_t row
    cdef BatchRecord record
    cdef list headers
    cdef list out = []
    for row in range(block.first, block.first + block.n):
        record = <BatchRecord>ff_new(<PyTypeObject *>kind, <PyObject *>NOTHING)
        record.offset = c.offsets[row]
        if c.timestamp_types[row] != FF_TIMESTAMP_NONE:
            record.timestamp = c.timestamps[row]
            record.timestamp_type = c.timestamp_types[row]
        record.key = span(block.origin, c.key_starts[row], c.key_lengths[row])
        record.value = span(block.origin, c.value_starts[row], c.value_lengths[row])
        headers = block.row_headers(row)
        if c.header_counts[row] != 0:
            headers = [(name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), value) for name, value in headers]
        record.headers = headers
        record.checksum = checksum(block, row)
        record.size_in_bytes = block.row_end(row) - block.row_start(row)
        out.append(record)
    return out
