"""gzip, lz4 and zstd through Python packages."""

from fastfetch.kernels.wire cimport *


cdef class PythonStates:
    """Modules and decompressors for one set of codecs. ff_codecs.owner points here."""

    cdef object zlib, lz4_block, zstd, zstd_error
    cdef ff_codecs *codecs
    cdef object raised              # what a package raised that is not about the bytes (FF_RAISED)


cdef int64_t python_gzip(void *context, const uint8_t *src, size_t n, uint8_t *dst, size_t cap) noexcept with gil
cdef int64_t python_zstd(void *context, const uint8_t *src, size_t n, uint8_t *dst, size_t cap) noexcept with gil
cdef int64_t python_lz4(void *context, const uint8_t *src, size_t n, uint8_t *dst, size_t cap, size_t history) noexcept with gil
cdef object python_module(str codec)
cdef str python_version(str codec)
cdef PythonStates python_states(ff_codecs *codecs)
