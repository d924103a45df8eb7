"""Where a run of batches ends, from its headers alone: what lets the next fetch leave before this one is decoded.

A promise, not a fact: no CRC is checked, and half of what is read here is not covered by one. Whoever acts on it compares with
`decode`'s answer afterwards.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from fastfetch.kernels.frames cimport ff_entry, ff_entry_offsets, ff_next_entry
from fastfetch.kernels.wire cimport FF_OK, FF_PARTIAL


cdef int64_t walk_headers(const uint8_t *data, size_t n, int64_t start, int32_t *leader_epoch) noexcept nogil:
    """The highest offset after a whole entry, at least `start`, and that entry's leader epoch; -1 if there is no whole entry or a
    header makes no sense."""
    cdef ff_entry entry
    cdef size_t at = 0
    cdef int64_t after, out = start
    cdef int status = ff_next_entry(data, n, at, &entry)
    leader_epoch[0] = -1
    if status != FF_OK:
        return -1
    while status == FF_OK:
        if ff_entry_offsets(&entry) != FF_OK:
            return -1
        after = entry.offset + entry.last_offset_delta + 1  # not last record + 1: the tail may be compacted away (KAFKA-5443)
        if after > out:
            out = after
            leader_epoch[0] = entry.leader_epoch
        at += entry.size
        if at == n:
            return out
        status = ff_next_entry(data, n, at, &entry)
    return out if status == FF_PARTIAL else -1


def promised_end(const unsigned char[::1] records, int64_t start) -> tuple:
    """(next offset, leader epoch) after `records`, as the batch headers promise it: where to fetch next, -1 if they promise nothing;
    and the epoch of the batch that ends there, -1 if it has none.

    records  bytes-like, one partition's part of a fetch response
    start    the offset that was asked for; the result is never below it
    """
    cdef int64_t out
    cdef int32_t leader_epoch = -1
    cdef Py_ssize_t n = records.shape[0]
    if n == 0:
        return -1, -1
    with nogil:
        out = walk_headers(&records[0], <size_t>n, start, &leader_epoch)
    return out, leader_epoch
