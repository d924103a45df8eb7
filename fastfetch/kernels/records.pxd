"""Records of one inflated v2 batch into columns."""

from fastfetch.kernels.frames cimport ff_entry
from fastfetch.kernels.wire cimport *


# Where a walk writes to and how far it got. The caller sets the first group, the walk moves the rest.
ctypedef struct ff_walk:
    ff_columns *columns         # room for the entry's count of rows from `rows` on
    const uint8_t *origin       # starts in the columns are relative to this
    int64_t position            # records below it are passed over in silence
    int64_t next_offset         # smallest offset that may still be delivered
    Py_ssize_t rows             # rows written so far
    int32_t index               # records read of this batch; on an error, the index of the bad one
    int64_t offset              # on an error in one record, its offset if known, else -1
    int64_t dropped             # records that repeat an offset or go back
    int64_t null_lengths        # lengths below -1, read as null


cdef int ff_walk_records(const ff_entry *entry, const uint8_t *payload, size_t n, ff_walk *walk) noexcept nogil
cdef void ff_fill_rows(const ff_entry *entry, ff_walk *walk, Py_ssize_t first, int timestamp_type) noexcept nogil
