"""Entries of a record set: where one starts and ends, and what its header says."""

from fastfetch.kernels.wire cimport *


ctypedef struct ff_entry:
    const uint8_t *data         # first byte of the entry; `size` bytes are proved present
    size_t size                 # of the whole entry: 12 + length
    int64_t offset              # magic 2: base offset; below: the message's own, or a wrapper's
    uint32_t crc                # as stored
    int magic
    int attributes
    # magic 2 only; the CRC covers these, so nothing trusts them before ff_entry_crc has been compared
    int32_t leader_epoch        # not covered by the CRC, like offset and magic
    int32_t last_offset_delta   # 0 below magic 2
    int64_t base_timestamp      # magic 1: the message's timestamp
    int64_t max_timestamp
    int64_t producer_id
    int16_t producer_epoch
    int32_t base_sequence
    int32_t count               # 1 below magic 2


cdef int ff_next_entry(const uint8_t *data, size_t n, size_t at, ff_entry *entry) noexcept nogil
cdef uint32_t ff_entry_crc(const ff_entry *entry) noexcept nogil
cdef int ff_entry_marker(const uint8_t *payload, size_t n, int *type_out) noexcept nogil


# Here, not in the .pyx: they are asked several times a batch, and a call into another module is never inlined.
cdef inline int ff_entry_offsets(const ff_entry *entry) noexcept nogil:
    """Offsets must be >= 0, and the next offset after the entry must fit int64 (Java lets it wrap to negative)."""
    if entry.offset < 0 or entry.last_offset_delta < 0:
        return FF_BAD_OFFSET
    if entry.offset > <int64_t>0x7FFFFFFFFFFFFFFE - entry.last_offset_delta:
        return FF_BAD_OFFSET
    return FF_OK


cdef inline int64_t ff_entry_next(const ff_entry *entry) noexcept nogil:
    """Next offset after an entry whose offsets are in range."""
    return entry.offset + entry.last_offset_delta + 1    # cannot overflow: ff_entry_offsets has passed
