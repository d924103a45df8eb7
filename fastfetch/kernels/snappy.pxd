"""Snappy: raw blocks, and the framing that Kafka's Java client puts around them."""

from fastfetch.kernels.wire cimport *


cdef int ff_snappy_size(const uint8_t *src, size_t n, uint64_t *size, int64_t *unused) noexcept nogil
cdef int ff_snappy_inflate(const uint8_t *src, size_t n, uint8_t *dst, size_t size) noexcept nogil
