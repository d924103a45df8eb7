"""Decoded records as a block of columns."""

from fastfetch.kernels.wire cimport *
from fastfetch.records.buffers cimport Buffer
from fastfetch.records.record cimport Record


cdef class RecordBlock:
    cdef readonly object topic
    cdef readonly int partition
    cdef readonly int64_t next_offset
    cdef object view                    # read-only memoryview of what the starts refer to
    cdef const uint8_t *origin          # its first byte
    cdef Buffer slab
    cdef ff_columns columns             # of the whole slab
    cdef size_t slab_rows
    cdef Py_ssize_t first               # rows [first, first + n) of the slab
    cdef Py_ssize_t n
    cdef Py_ssize_t old_first           # rows [old_first, old_end) of the slab are of magic 0 and 1
    cdef Py_ssize_t old_end
    cdef object cache                   # NumPy views made so far

    cdef object column(self, str name, const void *start, str dtype, Py_ssize_t width)
    cdef int row_magic(self, Py_ssize_t row) noexcept
    cdef const uint8_t *row_start(self, Py_ssize_t row) noexcept
    cdef const uint8_t *row_end(self, Py_ssize_t row) noexcept
    cdef list row_headers(self, Py_ssize_t row)
    cdef Record record(self, Py_ssize_t row)


cdef RecordBlock make_block(
    object topic, int partition, int64_t next_offset, object view, Buffer slab, size_t slab_rows, Py_ssize_t first, Py_ssize_t n)
