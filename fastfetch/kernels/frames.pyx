"""Splitting a record set into entries (record batches, or messages of the old formats).

    int64 offset | int32 length | 4 bytes | int8 magic | ...        `length` counts what follows it

Each entry says its own magic; different ones may follow each other. A record set ends where the broker cut it, so an entry that does
not end inside the bytes is normal (FF_PARTIAL) and is fetched again. What the header says beyond its own length is believed only after
the CRC; offset, length, leader epoch and magic of a v2 batch are outside it (the broker sets them).
"""

from fastfetch.kernels.wire cimport *


cdef int ff_next_entry(const uint8_t *data, size_t n, size_t at, ff_entry *entry) noexcept nogil:
    """Read the header of the entry at `at` (at <= n). FF_OK proves that the whole entry is present."""
    cdef size_t left = n - at
    cdef const uint8_t *p = data + at
    cdef int64_t length
    cdef int magic
    entry.data = p
    entry.size = 0
    if left < <size_t>FF_ENTRY_OVERHEAD:
        return FF_PARTIAL
    entry.offset = <int64_t>ff_load64(p)
    length = <int32_t>ff_load32(p + FF_ENTRY_LENGTH)
    if length < FF_ENTRY_MIN_LENGTH:
        return FF_BAD_LENGTH
    entry.size = <size_t>length + FF_ENTRY_OVERHEAD      # 64 bits: length may be 2^31 - 1
    if left <= <size_t>FF_ENTRY_MAGIC:
        return FF_PARTIAL
    magic = <int8_t>p[FF_ENTRY_MAGIC]
    entry.magic = magic
    if magic < 0:
        return FF_BAD_MAGIC
    if magic > 2:
        return FF_UNSUPPORTED_MAGIC
    # 14 is the smallest of all formats; a v2 header alone needs 49, a v1 message 22. Before any other field is touched.
    if magic == 2 and length < FF_BATCH_MIN_LENGTH or magic == 1 and length < FF_MESSAGE_V1_MIN_LENGTH:
        return FF_BAD_LENGTH
    if <size_t>length > left - FF_ENTRY_OVERHEAD:
        return FF_PARTIAL
    if magic == 2:
        entry.leader_epoch = <int32_t>ff_load32(p + FF_BATCH_LEADER_EPOCH)
        entry.crc = ff_load32(p + FF_BATCH_CRC)
        entry.attributes = <int16_t>ff_load16(p + FF_BATCH_ATTRIBUTES)
        entry.last_offset_delta = <int32_t>ff_load32(p + FF_BATCH_LAST_OFFSET_DELTA)
        entry.base_timestamp = <int64_t>ff_load64(p + FF_BATCH_BASE_TIMESTAMP)
        entry.max_timestamp = <int64_t>ff_load64(p + FF_BATCH_MAX_TIMESTAMP)
        entry.producer_id = <int64_t>ff_load64(p + FF_BATCH_PRODUCER_ID)
        entry.producer_epoch = <int16_t>ff_load16(p + FF_BATCH_PRODUCER_EPOCH)
        entry.base_sequence = <int32_t>ff_load32(p + FF_BATCH_BASE_SEQUENCE)
        entry.count = <int32_t>ff_load32(p + FF_BATCH_RECORDS_COUNT)
        return FF_OK
    entry.leader_epoch = -1
    entry.crc = ff_load32(p + FF_MESSAGE_CRC)
    entry.attributes = p[FF_MESSAGE_ATTRIBUTES]
    entry.last_offset_delta = 0
    entry.base_timestamp = <int64_t>ff_load64(p + FF_MESSAGE_V1_TIMESTAMP) if magic == 1 else -1
    entry.max_timestamp = entry.base_timestamp
    entry.producer_id = -1
    entry.producer_epoch = -1
    entry.base_sequence = -1
    entry.count = 1
    return FF_OK


cdef uint32_t ff_entry_crc(const ff_entry *entry) noexcept nogil:
    """The CRC computed: CRC-32C from the attributes on (magic 2), zlib's CRC-32 from the magic on (magic 0 and 1)."""
    if entry.magic == 2:
        return ff_crc32c(0, entry.data + FF_BATCH_ATTRIBUTES, entry.size - FF_BATCH_ATTRIBUTES)
    return ff_crc32(0, entry.data + FF_ENTRY_MAGIC, entry.size - FF_ENTRY_MAGIC)


cdef int ff_entry_marker(const uint8_t *payload, size_t n, int *type_out) noexcept nogil:
    """Type of the first control record of an (inflated) control batch: key = int16 version (>= 0), int16 type. The key may be longer."""
    cdef ff_reader r = ff_reader_of(payload, n)
    cdef int32_t length = ff_varint32(&r)
    cdef const uint8_t *key
    if r.bad or length < 0 or <size_t>length > ff_left(&r):
        return FF_BAD_MARKER
    r.end = r.at + length
    ff_take(&r, 1)
    ff_varint64(&r)
    ff_varint32(&r)
    length = ff_varint32(&r)
    if r.bad or length < 4:
        return FF_BAD_MARKER
    key = ff_take(&r, <size_t>length)
    if key == NULL or <int16_t>ff_load16(key) < 0:
        return FF_BAD_MARKER
    type_out[0] = <int16_t>ff_load16(key + 2)
    return FF_OK
