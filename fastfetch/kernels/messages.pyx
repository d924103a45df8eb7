"""The formats before 0.11, still on disk in old topics:

    offset int64 | size int32 | crc uint32 | magic int8 | attributes int8 | [timestamp int64, magic 1]
    | keyLength int32 | key | valueLength int32 | value

A compressed message ("wrapper") holds a message set as its value. Inside a magic-0 wrapper offsets are absolute; inside a magic-1 wrapper
they are relative, and the wrapper has the offset of its last message (KIP-31): absolute = wrapper - last inner + inner, never a
renumbering, since compaction leaves holes. Producers before that left the wrapper at 0: then inner offsets stand as they are.
"""

from fastfetch.kernels.frames cimport ff_entry, ff_next_entry
from fastfetch.kernels.records cimport ff_fill_rows, ff_walk
from fastfetch.kernels.wire cimport *


cdef inline int32_t take_bytes(ff_reader *r, const uint8_t **at) noexcept nogil:
    """An int32 length and as many bytes. Negative lengths are null, as in Java."""
    cdef int32_t length = ff_int32(r)
    at[0] = r.at
    if length > 0:
        ff_take(r, <size_t>length)
    return length


cdef inline ff_reader fields(const ff_entry *entry) noexcept nogil:
    cdef size_t start = FF_MESSAGE_V1_KEY if entry.magic == 1 else FF_MESSAGE_V0_KEY
    return ff_reader_of(entry.data + start, entry.size - start)


cdef int ff_message_value(const ff_entry *entry, const uint8_t **value, size_t *n) noexcept nogil:
    """The value of a wrapper. A null or empty one is an error: there is nothing to inflate."""
    cdef ff_reader r = fields(entry)
    cdef const uint8_t *at
    cdef int32_t length
    take_bytes(&r, &at)
    length = take_bytes(&r, &at)
    if r.bad:
        return FF_BAD_MESSAGE
    if length < 0:
        return FF_BAD_WRAPPER
    value[0] = at
    n[0] = <size_t>length
    return FF_OK


cdef inline int write_row(const ff_entry *entry, int64_t offset, int64_t timestamp, ff_walk *walk) noexcept nogil:
    """One message as a row, unless it lies below what may still be delivered. Bytes after the value are ignored, as in Java."""
    cdef ff_columns *c = walk.columns
    cdef ff_reader r = fields(entry)
    cdef const uint8_t *at
    cdef Py_ssize_t row = walk.rows
    cdef int32_t length
    walk.offset = offset
    length = take_bytes(&r, &at)
    walk.null_lengths += length < -1
    c.key_starts[row] = <int32_t>(at - walk.origin)
    c.key_lengths[row] = -1 if length < 0 else length
    length = take_bytes(&r, &at)
    walk.null_lengths += length < -1
    c.value_starts[row] = <int32_t>(at - walk.origin)
    c.value_lengths[row] = -1 if length < 0 else length
    if r.bad:
        return FF_BAD_MESSAGE
    walk.offset = -1
    walk.index += 1
    if offset < walk.next_offset:
        walk.dropped += offset >= walk.position
        return FF_OK
    c.offsets[row] = offset
    c.timestamps[row] = timestamp
    c.header_counts[row] = 0
    walk.rows = row + 1
    walk.next_offset = offset + 1
    return FF_OK


cdef inline int timestamp_type(const ff_entry *entry) noexcept nogil:
    if entry.magic == 0:                     # bit 3 has no meaning there
        return FF_TIMESTAMP_NONE
    return FF_TIMESTAMP_LOG_APPEND if entry.attributes & FF_ATTRIBUTE_LOG_APPEND_TIME else FF_TIMESTAMP_CREATE


cdef int ff_walk_message(const ff_entry *entry, ff_walk *walk) noexcept nogil:
    """An uncompressed message: one row. walk.columns has room for it."""
    cdef Py_ssize_t first = walk.rows
    cdef int status
    walk.index = 0
    status = write_row(entry, entry.offset, entry.base_timestamp, walk)
    ff_fill_rows(entry, walk, first, timestamp_type(entry))
    return status


cdef int ff_inner_count(const ff_entry *wrapper, const uint8_t *data, size_t n, int32_t *count, int64_t *last_offset) noexcept nogil:
    """Prove an inflated message set: whole messages to its very end, of the wrapper's magic, none compressed, at least one.

    Java hands out the whole ones of a cut set, and then numbers them wrongly because the last is missing; here a cut set is refused.
    """
    cdef ff_entry inner
    cdef size_t at = 0
    count[0] = 0
    last_offset[0] = -1
    while at < n:
        if ff_next_entry(data, n, at, &inner) != FF_OK:
            return FF_BAD_WRAPPER
        if inner.magic != wrapper.magic or inner.attributes & FF_CODEC_MASK or inner.offset < 0:
            return FF_BAD_WRAPPER
        last_offset[0] = inner.offset
        count[0] += 1
        at += inner.size
    if count[0] == 0:
        return FF_BAD_WRAPPER
    if wrapper.magic == 1 and wrapper.offset != 0 and wrapper.offset < last_offset[0]:
        return FF_BAD_WRAPPER
    return FF_OK


cdef int ff_walk_inner(const ff_entry *wrapper, const uint8_t *data, size_t n, int64_t last_offset, ff_walk *walk) noexcept nogil:
    """The messages of a set that ff_inner_count has proved. Their own CRCs are not compared: the wrapper's covers them."""
    cdef ff_entry inner
    cdef size_t at = 0
    cdef Py_ssize_t first = walk.rows
    cdef bint append_time = timestamp_type(wrapper) == FF_TIMESTAMP_LOG_APPEND
    cdef int64_t base = 0
    cdef int64_t offset
    cdef int status = FF_OK
    if wrapper.magic == 1 and wrapper.offset != 0:
        base = wrapper.offset - last_offset  # >= 0, as proved
    walk.index = 0
    while at < n:
        ff_next_entry(data, n, at, &inner)
        if inner.offset > <int64_t>0x7FFFFFFFFFFFFFFE - base:
            status = FF_BAD_WRAPPER
            break
        offset = base + inner.offset
        status = write_row(&inner, offset, wrapper.base_timestamp if append_time else inner.base_timestamp, walk)
        if status != FF_OK:
            break
        at += inner.size
    ff_fill_rows(wrapper, walk, first, timestamp_type(wrapper))
    return status
