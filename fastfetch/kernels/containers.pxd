"""The frames that LZ4 and Zstandard data come in: proved before a decompressor sees them."""

from fastfetch.kernels.wire cimport *


# What a compressed payload says of its inflated size.
ctypedef struct ff_extent:
    uint64_t most           # an upper bound
    uint64_t least          # a lower bound; equal to `most` if the size is declared
    int declared            # every frame declares its size
    int64_t unused          # bytes behind the last frame that are ignored


cdef int ff_zstd_extent(const uint8_t *src, size_t n, ff_extent *extent) noexcept nogil
cdef int ff_lz4_extent(const uint8_t *src, size_t n, ff_extent *extent) noexcept nogil
cdef int64_t ff_lz4_inflate(ff_codecs *codecs, const uint8_t *src, size_t n, uint8_t *dst, size_t cap, bint old_header) noexcept nogil
cdef uint32_t ff_xxh32(const uint8_t *data, size_t n) noexcept nogil
