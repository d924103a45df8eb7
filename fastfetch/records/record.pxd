"""One record as an object, and how columns become objects."""

from cpython.bytes cimport PyBytes_FromStringAndSize

from fastfetch.kernels.wire cimport *


cdef enum:
    PLACEHOLDER_EVERY = 1 << 20     # bytes of objects; see record.pyx


cdef class Record:
    cdef readonly object topic
    cdef readonly object key
    cdef readonly object value
    cdef object _headers                # None: none, made on first use
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp
    cdef int32_t _partition
    cdef int32_t _leader_epoch
    cdef readonly signed char timestamp_type


cdef void place(Py_ssize_t length)
cdef list spans(const uint8_t *origin, const int32_t *starts, const int32_t *lengths, Py_ssize_t n)
cdef list read_headers(const uint8_t *at, const uint8_t *end, int32_t count)
cdef void skip_headers(ff_reader *r) noexcept nogil


cdef inline object span(const uint8_t *origin, int32_t start, int32_t length):
    """A key or a value: bytes, or None for a negative length."""
    if length < 0:
        return None
    return PyBytes_FromStringAndSize(<const char *>origin + start, length)
