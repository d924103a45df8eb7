"""What to do with each entry of a record set, decided from the headers alone, in order.

Delivered, or passed over: below the position, aborted, a marker, empty. This needs no payload, so aborted batches are never inflated.
Headers are not proved by their CRC yet; that is sound because the first entry whose CRC is wrong ends the result, and decisions about what
lies behind it are dropped with it.
"""

from libc.stdlib cimport realloc

from fastfetch.kernels.codecs cimport ff_inflate, ff_plan, ff_plan_inflate
from fastfetch.kernels.frames cimport ff_entry, ff_entry_crc, ff_entry_marker, ff_entry_next, ff_entry_offsets, ff_next_entry
from fastfetch.kernels.wire cimport *
from fastfetch.records.aborted cimport ff_aborted, ff_aborted_end, ff_aborted_has, ff_aborted_reach
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


cdef int ff_plan_steps(
        const uint8_t *data, size_t n, int64_t position, ff_aborted *aborted, bint check_crcs, ff_codecs *codecs,
        ff_steps *steps) noexcept nogil:
    """Fill steps. `aborted` NULL: read_uncommitted. Returns FF_OK or FF_NO_MEMORY; steps.status says why the walk ended."""
    cdef ff_entry entry
    cdef size_t at = 0
    cdef int64_t running = position
    cdef int64_t last
    cdef int action, status
    cdef int marker = -1
    cdef bint compressed
    steps.status = FF_OK
    steps.end = 0
    while at < n:
        steps.status = ff_next_entry(data, n, at, &entry)
        if steps.status != FF_OK:
            break
        action = FF_DELIVER
        if ff_entry_offsets(&entry) != FF_OK:
            # The run will refuse it, or its CRC; nothing behind it matters.
            status = add_step(steps, at, FF_DELIVER)
            at += entry.size
            steps.end = at
            return status
        last = ff_entry_next(&entry) - 1
        compressed = (entry.attributes & FF_CODEC_MASK) != 0
        if entry.magic == 2:
            if aborted != NULL and entry.producer_id >= 0:
                ff_aborted_reach(aborted, last)
                if entry.attributes & FF_ATTRIBUTE_CONTROL:
                    status = marker_type(&entry, check_crcs, codecs, &marker)
                    if status == FF_NO_MEMORY:
                        return status
                    if status == FF_BAD_MARKER:
                        action = FF_REFUSE_MARKER
                    elif status == FF_OK and marker == FF_MARKER_ABORT:
                        ff_aborted_end(aborted, entry.producer_id)
                elif entry.attributes & FF_ATTRIBUTE_TRANSACTIONAL and ff_aborted_has(aborted, entry.producer_id):
                    action = FF_PASS_ABORTED
            if action == FF_DELIVER:
                if entry.attributes & FF_ATTRIBUTE_CONTROL:
                    action = FF_PASS_CONTROL
                elif entry.count == 0 and entry.size == FF_BATCH_HEADER:
                    action = FF_PASS_EMPTY           # kept by compaction for its producer; no codec is asked, whatever the bits say
                elif last < running:
                    action = FF_PASS_BELOW
        else:
            steps.legacy = steps.legacy or compressed
            # A v1 wrapper at 0 may hold absolute inner offsets, so its own offset says nothing.
            if last < running and not (compressed and entry.offset == 0):
                action = FF_PASS_BELOW
        status = add_step(steps, at, action)
        if status != FF_OK:
            return status
        if last + 1 > running:
            running = last + 1
        at += entry.size
        steps.end = at
    return FF_OK
