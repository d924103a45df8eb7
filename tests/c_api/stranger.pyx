"""An outside extension over fastfetch's kernels: what a program does that wants one figure per record and no record objects.

Compiled by tests/test_packaging.py against an installed fastfetch, with nothing of the source tree in reach.
"""

from libc.stdlib cimport free, malloc

from fastfetch.kernels.frames cimport ff_entry, ff_entry_crc, ff_next_entry
from fastfetch.kernels.records cimport ff_walk, ff_walk_records
from fastfetch.kernels.wire cimport *


def value_bytes(const uint8_t[::1] data not None):
    """(records, bytes of their values) of uncompressed v2 batches. ValueError says what was wrong and where."""
    cdef const uint8_t *start = &data[0] if data.shape[0] else NULL
    cdef size_t size = <size_t>data.shape[0]
    cdef size_t at = 0
    cdef int64_t records = 0, total = 0
    cdef int status
    with nogil:
        status = sum_values(start, size, &at, &records, &total)
    if status not in (FF_OK, FF_PARTIAL):
        raise ValueError(f"{ff_status_text(status).decode()} at byte {at}")
    return records, total


cdef int sum_values(const uint8_t *data, size_t size, size_t *at, int64_t *records, int64_t *total) noexcept nogil:
    cdef ff_entry entry
    cdef ff_columns columns
    cdef ff_walk walk
    cdef void *slab
    cdef int status
    cdef Py_ssize_t row
    while True:
        status = ff_next_entry(data, size, at[0], &entry)
        if status != FF_OK:
            return status
        if ff_entry_crc(&entry) != entry.crc:
            return FF_BAD_CRC
        if entry.magic != 2 or entry.attributes & FF_CODEC_MASK:
            return FF_BAD_CODEC
        # The count is a stranger's number until it is compared with the bytes that are there.
        if entry.count < 0 or <size_t>entry.count > (entry.size - FF_BATCH_HEADER) // FF_RECORD_MIN:
            return FF_BAD_COUNT
        slab = malloc(ff_slab_bytes(<size_t>entry.count) or 1)
        if slab == NULL:
            return FF_NO_MEMORY
        columns = ff_columns_of(slab, <size_t>entry.count)
        walk = ff_walk(columns=&columns, origin=entry.data, position=0, next_offset=0, rows=0, index=0, offset=-1, dropped=0, null_lengths=0)
        status = ff_walk_records(&entry, entry.data + FF_BATCH_HEADER, entry.size - FF_BATCH_HEADER, &walk)
        records[0] += walk.rows
        for row in range(walk.rows):
            if columns.value_lengths[row] > 0:
                total[0] += columns.value_lengths[row]
        free(slab)
        if status != FF_OK:
            return status
        at[0] += entry.size
