"""What to do with each entry of a record set, decided from the headers alone, in order.

Delivered, or passed over: below the position, aborted, a marker, empty. This needs no payload, so aborted batches are never inflated.
Headers are not proved by their CRC yet; that is sound because the first entry whose CRC is wrong ends the result, and decisions about what
lies behind it are dropped with it.
"""

from libc.stdlib cimport realloc

from fastfetch.kernels.codecs cimport ff_inflate, ff_plan, ff_plan_inflate
from fastfetch.kernels.frames cimport ff_entry, ff_entry_crc, ff_entry_marker, ff_entry_next, ff_entry_offsets, ff_next_entry
from fastfetch.kernels.wire cimport *
from fastfetch.records.aborted cimport ff_aborted_end, ff_aborted_has, ff_aborted_reach
from fastfetch.records.buffers cimport ff_buffer_give, ff_buffer_take


cdef enum:
    MARKER_MAX = 1 << 16            # a compressed control batch larger than this is no marker


cdef int add_step(ff_steps *steps, size_t at, int action) noexcept nogil:
    cdef ff_step *items
    cdef Py_ssize_t capacity
    if steps.n == steps.capacity:
        capacity = steps.capacity * 2 if steps.capacity > 0 else 64
        items = <ff_step *>realloc(steps.items, <size_t>capacity * sizeof(ff_step))
        if items == NULL:
            return FF_NO_MEMORY
        steps.items = items
        steps.capacity = capacity
    steps.items[steps.n].at = at
    steps.items[steps.n].action = action
    steps.n += 1
    return FF_OK


cdef int marker_type(const ff_entry *entry, bint check_crcs, ff_codecs *codecs, int *type_out) noexcept nogil:
    """Type of a control batch's first record. FF_PARTIAL: it has none, or its CRC is wrong (which the run reports)."""
    cdef const uint8_t *payload = entry.data + FF_BATCH_HEADER
    cdef size_t n = entry.size - FF_BATCH_HEADER
    cdef ff_plan plan
    cdef void *room
    cdef size_t capacity
    cdef int64_t unused = 0
    cdef int64_t got
    cdef int status
    cdef int codec = entry.attributes & FF_CODEC_MASK
    if entry.count == 0:
        return FF_PARTIAL
    if codec == FF_CODEC_NONE:
        return ff_entry_marker(payload, n, type_out)
    # Brokers don't compress markers. Nothing is inflated before its CRC is right.
    if check_crcs and ff_entry_crc(entry) != entry.crc:
        return FF_PARTIAL
    if codec > FF_CODEC_ZSTD or n == 0 or ff_plan_inflate(codec, payload, n, &unused, &plan) != FF_OK:
        return FF_BAD_MARKER
    room = ff_buffer_take(MARKER_MAX, &capacity)
    if room == NULL:
        return FF_NO_MEMORY
    got = ff_inflate(codecs, codec, 2, payload, n, <uint8_t *>room, MARKER_MAX)
    status = FF_BAD_MARKER if got < 0 else ff_entry_marker(<const uint8_t *>room, <size_t>got, type_out)
    ff_buffer_give(room, capacity)
    return status


cdef int ff_plan_next(ff_planner *planner, ff_entry *entry, int *action) noexcept nogil:
    """The next entry and what to do with it: FF_OK, or FF_PARTIAL: there is none (planner.status says why), or FF_NO_MEMORY."""
    cdef int64_t last
    cdef int status
    cdef int marker = -1
    cdef bint compressed
    if planner.stopped or planner.end == planner.n:
        return FF_PARTIAL
    planner.status = ff_next_entry(planner.data, planner.n, planner.end, entry)
    if planner.status != FF_OK:
        planner.stopped = True
        return FF_PARTIAL
    action[0] = FF_DELIVER
    if ff_entry_offsets(entry) != FF_OK:
        # The run will refuse it, or its CRC; nothing behind it matters.
        planner.stopped = True
        planner.end += entry.size
        return FF_OK
    last = ff_entry_next(entry) - 1
    compressed = (entry.attributes & FF_CODEC_MASK) != 0
    if entry.magic == 2:
        if planner.aborted != NULL and entry.producer_id >= 0:
            ff_aborted_reach(planner.aborted, last)
            if entry.attributes & FF_ATTRIBUTE_CONTROL:
                status = marker_type(entry, planner.check_crcs, planner.codecs, &marker)
                if status == FF_NO_MEMORY:
                    return status
                if status == FF_BAD_MARKER:
                    action[0] = FF_REFUSE_MARKER
                elif status == FF_OK and marker == FF_MARKER_ABORT:
                    ff_aborted_end(planner.aborted, entry.producer_id)
            elif entry.attributes & FF_ATTRIBUTE_TRANSACTIONAL and ff_aborted_has(planner.aborted, entry.producer_id):
                action[0] = FF_PASS_ABORTED
        if action[0] == FF_DELIVER:
            if entry.attributes & FF_ATTRIBUTE_CONTROL:
                action[0] = FF_PASS_CONTROL
            elif entry.count == 0 and entry.size == FF_BATCH_HEADER:
                action[0] = FF_PASS_EMPTY        # kept by compaction for its producer; no codec is asked, whatever the bits say
            elif last < planner.next_offset:
                action[0] = FF_PASS_BELOW
    else:
        planner.legacy = planner.legacy or compressed
        # A v1 wrapper at 0 may hold absolute inner offsets, so its own offset says nothing.
        if last < planner.next_offset and not (compressed and entry.offset == 0):
            action[0] = FF_PASS_BELOW
    if last + 1 > planner.next_offset:
        planner.next_offset = last + 1
    planner.end += entry.size
    return FF_OK


cdef int ff_plan_all(ff_planner *planner, ff_steps *steps) noexcept nogil:
    """Plan to the end, for threads that share the entries. FF_OK or FF_NO_MEMORY."""
    cdef ff_entry entry
    cdef int action, status
    while True:
        status = ff_plan_next(planner, &entry, &action)
        if status == FF_OK:
            status = add_step(steps, <size_t>(entry.data - planner.data), action)
        if status != FF_OK:
            return FF_OK if status == FF_PARTIAL else status
