"""Walking the records of a v2 batch (KIP-98, KIP-82 headers):

    length varint | attributes int8 | timestampDelta varint64 | offsetDelta varint | keyLength varint | key | valueLength varint | value
    | headersCount varint | { keyLength varint | key | valueLength varint | value } ...

Invariants: a record's fields fill its length exactly; rows before a bad record are good; offsets written strictly increase.
"""

from libc.string cimport memset

from fastfetch.kernels.frames cimport ff_entry
from fastfetch.kernels.wire cimport *


cdef inline int walk_headers(ff_reader *r, int32_t count, ff_walk *walk) noexcept nogil:
    cdef int32_t length
    if count < 0 or <size_t>count > ff_left(r) // FF_HEADER_MIN:
        return FF_BAD_HEADERS
    while count > 0:
        length = ff_varint32(r)
        if length < 0:                       # a null header key is an error in Java too
            return FF_BAD_HEADERS
        ff_take(r, <size_t>length)
        length = ff_varint32(r)
        if length > 0:
            ff_take(r, <size_t>length)
        elif length < -1:
            walk.null_lengths += 1
        if r.bad:
            return FF_BAD_HEADERS
        count -= 1
    return FF_OK


cdef int ff_walk_records(const ff_entry *entry, const uint8_t *payload, size_t n, ff_walk *walk) noexcept nogil:
    """Write a row for each record at or above walk.next_offset. The caller has proved entry.count <= n / 7 and the offsets' range.

    With bytes left after the last counted record that record is taken back: its count, or its end, is a lie (as in Java).
    """
    cdef ff_columns c = walk.columns[0]      # a copy: a store to a column cannot change it
    cdef ff_reader r = ff_reader_of(payload, n)
    cdef const uint8_t *end = r.end
    cdef const uint8_t *origin = walk.origin
    cdef Py_ssize_t first = walk.rows
    cdef Py_ssize_t row = first
    cdef int32_t count = entry.count
    cdef int32_t index = 0
    cdef int32_t length, offset_delta, header_count
    cdef int64_t time_delta, offset
    cdef int64_t next_offset = walk.next_offset
    cdef int64_t before_last = next_offset
    cdef bint last_written = False
    cdef bint append_time = (entry.attributes & FF_ATTRIBUTE_LOG_APPEND_TIME) != 0
    cdef int status = FF_OK
    walk.offset = -1
    while index < count:
        if r.at == end:
            status = FF_MISSING_RECORDS
            break
        length = ff_varint32(&r)
        if length < 0 or <size_t>length > ff_left(&r) or r.bad:
            status = FF_BAD_RECORD_LENGTH
            break
        r.end = r.at + length
        ff_take(&r, 1)                       # attributes: one unused byte, whatever it says
        time_delta = ff_varint64(&r)
        offset_delta = ff_varint32(&r)
        offset = entry.offset + offset_delta

        length = ff_varint32(&r)
        c.key_starts[row] = <int32_t>(r.at - origin)
        if length > 0:
            ff_take(&r, <size_t>length)
        elif length < 0:
            walk.null_lengths += length < -1
            length = -1
        c.key_lengths[row] = length

        length = ff_varint32(&r)
        c.value_starts[row] = <int32_t>(r.at - origin)
        if length > 0:
            ff_take(&r, <size_t>length)
        elif length < 0:
            walk.null_lengths += length < -1
            length = -1
        c.value_lengths[row] = length

        header_count = ff_varint32(&r)
        if header_count != 0 and not r.bad:
            status = walk_headers(&r, header_count, walk)
            if status != FF_OK:
                walk.offset = offset
                break
        if r.bad or r.at != r.end:           # one check for the whole record; the reader cannot have over-read
            status = FF_BAD_RECORD
            break
        ff_resume_at_end(&r)
        r.end = end
        if offset_delta < 0 or offset_delta > entry.last_offset_delta:
            # Going on after it would move the position past offsets that were never seen.
            status = FF_BAD_OFFSET_DELTA
            walk.offset = offset
            break
        index += 1
        last_written = offset >= next_offset
        if last_written:
            c.offsets[row] = offset
            # Unsigned, so that a delta of a hostile producer wraps as in Java instead of being undefined.
            c.timestamps[row] = (
                entry.max_timestamp if append_time else <int64_t>(<uint64_t>entry.base_timestamp + <uint64_t>time_delta))
            c.header_counts[row] = header_count
            before_last = next_offset
            next_offset = offset + 1
            row += 1
        elif offset >= walk.position:
            walk.dropped += 1
    if status == FF_OK and r.at != end:
        status = FF_LEFT_OVER
        if count > 0:
            index -= 1
        if last_written:
            row -= 1
            next_offset = before_last
    walk.rows = row
    walk.index = index
    walk.next_offset = next_offset
    ff_fill_rows(entry, walk, first, FF_TIMESTAMP_LOG_APPEND if append_time else FF_TIMESTAMP_CREATE)
    return status


cdef void ff_fill_rows(const ff_entry *entry, ff_walk *walk, Py_ssize_t first, int timestamp_type) noexcept nogil:
    """What is the same for all rows of an entry, [first, walk.rows)."""
    cdef Py_ssize_t row
    cdef int32_t *leader_epochs = walk.columns.leader_epochs
    cdef int32_t leader_epoch = entry.leader_epoch
    if walk.rows <= first:                   # nothing written, perhaps no slab yet
        return
    for row in range(first, walk.rows):
        leader_epochs[row] = leader_epoch
    memset(walk.columns.timestamp_types + first, timestamp_type, <size_t>(walk.rows - first))
