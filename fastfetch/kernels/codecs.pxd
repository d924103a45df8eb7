"""Codec providers behind the inflate function pointers of codec.h, and the one door to all codecs."""

from fastfetch.kernels.python_codecs cimport PythonStates
from fastfetch.kernels.wire cimport *


# What a payload says of its inflated size before anything is inflated.
ctypedef struct ff_plan:
    uint64_t most       # it cannot be larger than this
    uint64_t least      # it is at least this, or it is bad
    uint64_t guess      # room to try first


cdef class Codecs:
    """One set of decompressor states. Belongs to one thread at a time."""

    cdef ff_codecs c
    cdef PythonStates python        # of the Python provider; None where it is not used
    cdef int generation

    cdef int raise_pending(self) except -1


cdef Codecs acquire_codecs(bint lz4_content_checksum)
cdef void release_codecs(Codecs codecs)
cdef int ff_plan_inflate(int codec, const uint8_t *src, size_t n, int64_t *unused, ff_plan *plan) noexcept nogil
cdef int64_t ff_inflate(ff_codecs *codecs, int codec, int magic, const uint8_t *src, size_t n, uint8_t *dst, size_t cap) noexcept nogil
