"""Messages of magic 0 and 1, alone or inside a compressed wrapper."""

from fastfetch.kernels.frames cimport ff_entry
from fastfetch.kernels.records cimport ff_walk
from fastfetch.kernels.wire cimport *


cdef int ff_message_value(const ff_entry *entry, const uint8_t **value, size_t *n) noexcept nogil
cdef int ff_walk_message(const ff_entry *entry, ff_walk *walk) noexcept nogil
cdef int ff_inner_count(const ff_entry *wrapper, const uint8_t *data, size_t n, int32_t *count, int64_t *last_offset) noexcept nogil
cdef int ff_walk_inner(const ff_entry *wrapper, const uint8_t *data, size_t n, int64_t last_offset, ff_walk *walk) noexcept nogil
