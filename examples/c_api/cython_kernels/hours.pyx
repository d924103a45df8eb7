"""A histogram of record timestamps, made batch by batch. See README.md."""

from cpython.array cimport array, clone
from libc.stdlib cimport free, realloc

from fastfetch.kernels.codecs cimport Codecs, acquire_codecs, ff_inflate, ff_plan, ff_plan_inflate, release_codecs
from fastfetch.kernels.frames cimport ff_entry, ff_entry_crc, ff_next_entry
from fastfetch.kernels.records cimport ff_walk, ff_walk_records
from fastfetch.kernels.wire cimport *

cdef enum:
    BATCH_MOST = 64 << 20          # inflated; what a header promises is a stranger's number

cdef struct memory:                # used again for each batch
    uint8_t *arena
    size_t arena_bytes
    void *slab
    size_t slab_bytes


cdef struct steps:
    int64_t first_ms
    int64_t step_ms
    Py_ssize_t n
    int64_t *counts
    int64_t outside


def histogram(const uint8_t[::1] data not None, int64_t first_ms, Py_ssize_t n, int64_t step_ms=3_600_000):
    """(array of n counts, records outside): how many records have a timestamp in each of n steps from first_ms on (ms since 1970)."""
    if n < 1 or step_ms < 1:
        raise ValueError(f"n and step_ms must be at least 1; got {n} and {step_ms}")
    cdef const uint8_t *start = &data[0] if data.shape[0] else NULL
    cdef size_t size = <size_t>data.shape[0]
    cdef size_t at = 0
    cdef array counts = clone(array("q"), n, True)
    cdef steps out = steps(first_ms, step_ms, n, <int64_t *>counts.data.as_longlongs, 0)
    cdef Codecs codecs = acquire_codecs(True)
    cdef memory room = memory(NULL, 0, NULL, 0)
    cdef int status
    with nogil:
        status = count_all(start, size, &codecs.c, &room, &at, &out)
    free(room.arena)
    free(room.slab)
    if status == FF_RAISED:
        codecs.raise_pending()
    release_codecs(codecs)
    if status == FF_NO_MEMORY:
        raise MemoryError
    if status not in (FF_OK, FF_PARTIAL):
        raise ValueError(f"{ff_status_text(status).decode()} at byte {at}")
    return counts, out.outside


cdef int count_all(const uint8_t *data, size_t size, ff_codecs *codecs, memory *room, size_t *at, steps *out) noexcept nogil:
    cdef ff_entry entry
    cdef int status
    while True:
        status = ff_next_entry(data, size, at[0], &entry)
        if status != FF_OK:
            return status
        if ff_entry_crc(&entry) != entry.crc:          # nothing else of the header means anything before
            return FF_BAD_CRC
        if entry.magic != 2:
            return FF_UNSUPPORTED_MAGIC
        if not entry.attributes & FF_ATTRIBUTE_CONTROL:
            status = count_batch(&entry, codecs, room, out)
            if status != FF_OK:
                return status
        at[0] += entry.size


cdef int count_batch(const ff_entry *entry, ff_codecs *codecs, memory *room, steps *out) noexcept nogil:
    cdef const uint8_t *payload = entry.data + FF_BATCH_HEADER
    cdef size_t n = entry.size - FF_BATCH_HEADER
    cdef ff_columns columns
    cdef ff_walk walk
    cdef Py_ssize_t row
    cdef int64_t since
    cdef int status
    if entry.attributes & FF_CODEC_MASK:
        status = inflate(entry, codecs, room, &n)
        if status != FF_OK:
            return status
        payload = room.arena
    if entry.count < 0 or <size_t>entry.count > n // FF_RECORD_MIN:
        return FF_BAD_COUNT
    if not grow(&room.slab, &room.slab_bytes, ff_slab_bytes(<size_t>entry.count)):
        return FF_NO_MEMORY
    columns = ff_columns_of(room.slab, <size_t>entry.count)
    walk = ff_walk(columns=&columns, origin=payload, position=0, next_offset=0, rows=0, index=0, offset=-1, dropped=0, null_lengths=0)
    status = ff_walk_records(entry, payload, n, &walk)
    for row in range(walk.rows):                       # the good ones count, whatever came behind them
        since = columns.timestamps[row] - out.first_ms
        if since >= 0 and since // out.step_ms < out.n:
            out.counts[since // out.step_ms] += 1
        else:
            out.outside += 1
    return status


cdef int inflate(const ff_entry *entry, ff_codecs *codecs, memory *room, size_t *n) noexcept nogil:
    """Into the arena. Its size is a guess at first: not every format tells how large the result will be."""
    cdef const uint8_t *payload = entry.data + FF_BATCH_HEADER
    cdef int codec = entry.attributes & FF_CODEC_MASK
    cdef int64_t unused = 0
    cdef int64_t got
    cdef uint64_t most, wanted
    cdef ff_plan plan
    cdef int status
    if codec > FF_CODEC_ZSTD:
        return FF_BAD_CODEC
    if n[0] == 0:
        return FF_BAD_INFLATE
    status = ff_plan_inflate(codec, payload, n[0], &unused, &plan)
    if status != FF_OK:
        return status
    if plan.least > BATCH_MOST:
        return FF_TOO_LARGE
    most = min(plan.most, <uint64_t>BATCH_MOST)
    wanted = max(min(plan.guess, most), <uint64_t>1)
    while True:
        if not grow(<void **>&room.arena, &room.arena_bytes, <size_t>wanted):
            return FF_NO_MEMORY
        got = ff_inflate(codecs, codec, entry.magic, payload, n[0], room.arena, <size_t>wanted)
        if got >= 0:
            n[0] = <size_t>got
            return FF_OK
        if got != -FF_OUTPUT_FULL:
            return <int>-got
        if wanted >= most:
            return FF_TOO_LARGE if most == BATCH_MOST else FF_BAD_INFLATE
        wanted = min(wanted * 2, most)


cdef bint grow(void **memory, size_t *has, size_t wants) noexcept nogil:
    cdef void *larger
    if wants > has[0] or memory[0] == NULL:
        larger = realloc(memory[0], wants + 1)
        if larger == NULL:
            return False
        memory[0] = larger
        has[0] = wants
    return True
