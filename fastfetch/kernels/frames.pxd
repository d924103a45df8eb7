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
cdef int ff_entry_offsets(const ff_entry *entry) noexcept nogil
cdef int64_t ff_entry_next(const ff_entry *entry) noexcept nogil
cdef int ff_entry_marker(const uint8_t *payload, size_t n, int *type_out) noexcept nogil
