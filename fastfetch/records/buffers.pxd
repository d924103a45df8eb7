"""Memory for arenas and slabs, reused while nothing refers to it."""

from libc.stddef cimport size_t


cdef void *ff_buffer_take(size_t wanted, size_t *capacity) noexcept nogil
cdef void *ff_buffer_grow(void *buffer, size_t wanted, size_t *capacity) noexcept nogil
cdef void ff_buffer_give(void *buffer, size_t capacity) noexcept nogil


cdef class Buffer:
    """Owns one piece of memory and exports its first `used` bytes, read-only."""

    cdef void *data
    cdef size_t used
    cdef size_t capacity


cdef Buffer own_buffer(void *data, size_t used, size_t capacity)
