"""Blocks into instances of Python classes: rows() makes each instance, still empty, beside the values it is to have.

Who sets them is Python code (data_objects.py), for a reason: since 3.11 the interpreter stores an attribute in a third of the time that
PyObject_SetAttr needs, because it remembers where the class keeps it. Eleven of them: 60 ns against 170.
"""

cimport cython
from cpython.object cimport PyObject, PyTypeObject

from fastfetch.adapters.rows cimport checksum
from fastfetch.kernels.wire cimport *
from fastfetch.records.block cimport RecordBlock
from fastfetch.records.record cimport PLACEHOLDER_EVERY, place, span


cdef extern from *:
    """
    /* object.__new__(kind). Not tp_alloc: 3.11 and 3.12 give the instance its place for attributes here. */
    static PyObject *ff_new_instance(PyTypeObject *kind, PyObject *nothing) {
        return PyBaseObject_Type.tp_new(kind, nothing, NULL);
    }
    """
    object ff_new_instance(PyTypeObject *kind, PyObject *nothing)


cdef tuple NOTHING = ()


@cython.final
cdef class Rows:
    """Iterates over a block: (an empty instance, offset, timestamp, timestamp type, key, value, checksum, key size, value size, headers).

    Timestamp and type are None in format 0; the checksum is the message's CRC in formats 0 and 1, else None; sizes are -1 for null;
    headers are a tuple of (str, bytes | None).
    """

    cdef RecordBlock block
    cdef type kind
    cdef Py_ssize_t row
    cdef Py_ssize_t made                 # bytes since the last placeholder

    def __iter__(self):
        return self

    def __next__(self):
        cdef RecordBlock block = self.block
        cdef ff_columns *c = &block.columns
        cdef Py_ssize_t row = self.row
        cdef int32_t key_length, value_length
        cdef object timestamp, timestamp_type, headers
        if row == block.first + block.n:
            raise StopIteration
        self.row = row + 1
        if c.timestamp_types[row] == FF_TIMESTAMP_NONE:
            timestamp = timestamp_type = None
        else:
            timestamp = c.timestamps[row]
            timestamp_type = c.timestamp_types[row]
        key_length = c.key_lengths[row]
        value_length = c.value_lengths[row]
        headers = NOTHING if c.header_counts[row] == 0 else tuple(block.row_headers(row))
        self.made += value_length + 320
        if self.made > PLACEHOLDER_EVERY:
            place(max(value_length, 0))
            self.made = 0
        return (
            ff_new_instance(<PyTypeObject *>self.kind, <PyObject *>NOTHING),
            c.offsets[row],
            timestamp,
            timestamp_type,
            span(block.origin, c.key_starts[row], key_length),
            span(block.origin, c.value_starts[row], value_length),
            checksum(block, row),
            key_length,
            value_length,
            headers,
        )


def rows(RecordBlock block not None, type kind not None) -> Rows:
    """Rows of a block, with instances of `kind`, whose __init__ is not called. TypeError if `kind` has a __new__ of its own."""
    cdef Rows out
    if kind.__new__ is not object.__new__:
        raise TypeError(f"kind must be a class without a __new__ of its own; got {kind!r}")
    out = Rows.__new__(Rows)
    out.block = block
    out.kind = kind
    out.row = block.first
    return out
