"""gzip, lz4 and zstd through the machine's shared libraries."""

from fastfetch.kernels.wire cimport *


ctypedef struct ff_system:      # which libraries are there, and new enough
    bint gzip
    bint lz4
    bint zstd


cdef ff_system system_has
cdef int64_t system_gzip(void *context, const uint8_t *src, size_t n, uint8_t *dst, size_t cap) noexcept nogil
cdef int64_t system_zstd(void *context, const uint8_t *src, size_t n, uint8_t *dst, size_t cap) noexcept nogil
cdef int64_t system_lz4(void *context, const uint8_t *src, size_t n, uint8_t *dst, size_t cap, size_t history) noexcept nogil
cdef void free_system_states(ff_codecs *codecs) noexcept nogil
cdef str system_version(str codec)
