"""Values that are 8-byte integers, most significant byte first, into one NumPy array. See README.md."""

import numpy as np

from fastfetch cimport RecordBlock
from fastfetch.kernels.wire cimport *


def values(RecordBlock block not None):
    """(numbers, is_null): int64 and bool, one element a record; a null is 0. Raises ValueError for a value of another length."""
    cdef Py_ssize_t first = block.first            # a slice shares the columns of its block
    cdef Py_ssize_t bad = -1
    cdef Py_ssize_t i
    numbers = np.zeros(block.n, np.int64)
    is_null = np.zeros(block.n, np.bool_)
    cdef int64_t[::1] out = numbers
    cdef uint8_t[::1] nulls = is_null.view(np.uint8)
    with nogil:                                    # the argument keeps the block, and the block its memory
        for i in range(block.n):
            if block.columns.value_lengths[first + i] == 8:
                out[i] = <int64_t>ff_load64(block.origin + block.columns.value_starts[first + i])
            elif block.columns.value_lengths[first + i] < 0:
                nulls[i] = 1
            else:
                bad = first + i
                break
    if bad >= 0:
        raise ValueError(f"the value at offset {block.columns.offsets[bad]} has {block.columns.value_lengths[bad]} bytes, not 8")
    return numbers, is_null
