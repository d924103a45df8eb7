"""An outside extension that takes decoded blocks at C level: their columns without a NumPy array in between."""

from fastfetch cimport RecordBlock


def longest_value(RecordBlock block not None):
    """(offset, length) of the longest value of a block, or None."""
    cdef Py_ssize_t row, best = -1
    for row in range(block.first, block.first + block.n):
        if best < 0 or block.columns.value_lengths[row] > block.columns.value_lengths[best]:
            best = row
    return None if best < 0 else (block.columns.offsets[best], block.columns.value_lengths[best])
