"""Blocks into instances of Python classes: rows() makes the instances, still empty, and yields the values that each is to have.

Who sets them is Python code (data_objects.py), for a reason: since 3.11 the interpreter stores an attribute in a third of the time
that PyObject_SetAttr needs, because it remembers where the class keeps it. Eleven of them: 60 ns against 170.
"""

cimport cython
from cpython.list cimport PyList_GET_ITEM, PyList_New, PyList_SET_ITEM
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF

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

    /* With the GIL held from the one to the other nobody sees that the collector was off. */
    #ifdef Py_GIL_DISABLED
    static int ff_hold_collector(void) { return 0; }
    #else
    static int ff_hold_collector(void) { return PyGC_Disable(); }
    #endif
    static void ff_release_collector(int was_on) { if (was_on) PyGC_Enable(); }
    """
    object ff_new_instance(PyTypeObject *kind, PyObject *nothing)
    int ff_hold_collector()
    void ff_release_collector(int was_on)


cdef tuple NOTHING = ()
cdef tuple FIELDS = (
    "topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "checksum", "serialized_key_size",
    "serialized_value_size", "headers")


cdef list new_instances(type kind, Py_ssize_t n):
    """n empty instances.

    The collector is held meanwhile. It would run every 700 of them, take those that are there for lasting ones after a few times, and
    go through everything the program has because there are so many new ones: half the time of reading went there. So it looks once
    at all of them, and by its next look the program has mostly dropped them.

    3.11 lets a class have fewer new attributes with each instance that is made without them, and then gives every instance a dict,
    for good. So one instance gets its attributes before the others are made.
    """
    cdef list out
    cdef Py_ssize_t i
    cdef int was_on
    cdef object instance
    cdef object first = ff_new_instance(<PyTypeObject *>kind, <PyObject *>NOTHING)
    for name in FIELDS:
        setattr(first, name, None)
    out = PyList_New(n)
    was_on = ff_hold_collector()
    try:
        for i in range(n):
            instance = ff_new_instance(<PyTypeObject *>kind, <PyObject *>NOTHING)
            Py_INCREF(instance)
            PyList_SET_ITEM(out, i, instance)
    finally:
        ff_release_collector(was_on)
    return out


@cython.final
cdef class Rows:
    """Iterates over blocks: (an instance, topic, partition, offset, timestamp, timestamp type, key, value, checksum, key size, value size,
    headers). `instances` are all of them.

    Timestamp and type are None in format 0; the checksum is the message's CRC in formats 0 and 1, else None; sizes are -1 for null;
    headers are a tuple of (str, bytes | None).
    """

    cdef readonly list instances
    cdef list blocks                     # of those that are not empty
    cdef Py_ssize_t made                 # instances handed out
    cdef Py_ssize_t blocks_done
    cdef RecordBlock block               # the present one
    cdef object partition
    cdef Py_ssize_t row                  # its next row
    cdef Py_ssize_t end
    cdef Py_ssize_t bytes                # made since the last placeholder

    def __iter__(self):
        return self

    def __next__(self):
        cdef RecordBlock block = self.block
        cdef ff_columns *c
        cdef Py_ssize_t row
        cdef int32_t key_length, value_length
        cdef object timestamp, timestamp_type, headers
        if self.row == self.end:
            if self.blocks_done == len(self.blocks):
                raise StopIteration
            block = self.blocks[self.blocks_done]
            self.blocks_done += 1
            self.block = block
            self.partition = block.partition
            self.row = block.first
            self.end = block.first + block.n
        c = &block.columns
        row = self.row
        self.row = row + 1
        if c.timestamp_types[row] == FF_TIMESTAMP_NONE:
            timestamp = timestamp_type = None
        else:
            timestamp = c.timestamps[row]
            timestamp_type = c.timestamp_types[row]
        key_length = c.key_lengths[row]
        value_length = c.value_lengths[row]
        headers = NOTHING if c.header_counts[row] == 0 else tuple(block.row_headers(row))
        self.bytes += value_length + 320
        if self.bytes > PLACEHOLDER_EVERY:
            place(max(value_length, 0))
            self.bytes = 0
        self.made += 1
        return (
            <object>PyList_GET_ITEM(self.instances, self.made - 1),
            block.topic,
            self.partition,
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


def rows(list blocks not None, type kind not None) -> Rows:
    """Rows of the blocks, with instances of `kind`, whose __init__ is not called. TypeError if `kind` has a __new__ of its own."""
    cdef Rows out
    cdef RecordBlock block
    cdef Py_ssize_t n = 0
    if kind.__new__ is not object.__new__:
        raise TypeError(f"kind must be a class without a __new__ of its own; got {kind!r}")
    out = Rows.__new__(Rows)
    out.blocks = []
    for block in blocks:
        if block.n > 0:
            n += block.n
            out.blocks.append(block)
    out.instances = new_instances(kind, n)
    return out
