"""Decoding planned entries into blocks without the GIL: CRC, range checks, inflate, walk. Any stretch of the steps can be done by itself,
so several threads can share a response. One thread alone plans each entry just before it decodes it: a pass over the headers of a whole
response waits for memory at every one of them, which costs more than decoding a small batch.

A run of neighbouring entries becomes one block: uncompressed ones share the input, compressed ones are inflated one behind another into
one arena. The next offset after an entry is its base offset + last offset delta + 1, not the last record + 1 (KAFKA-5443).
"""

from libc.stdlib cimport free, realloc
from libc.string cimport memset

from fastfetch.kernels.codecs cimport ff_inflate, ff_plan, ff_plan_inflate
from fastfetch.kernels.frames cimport ff_entry, ff_entry_crc, ff_entry_next, ff_entry_offsets, ff_next_entry
from fastfetch.kernels.messages cimport ff_inner_count, ff_message_value, ff_walk_inner, ff_walk_message
from fastfetch.kernels.records cimport ff_walk, ff_walk_records
from fastfetch.kernels.wire cimport *
from fastfetch.records.buffers cimport ff_buffer_give, ff_buffer_grow, ff_buffer_take
from fastfetch.records.plan cimport FF_DELIVER, FF_PASS_BELOW, FF_REFUSE_MARKER, ff_plan_next


cdef extern from *:
    """
    #if defined(__GNUC__)
    #define FF_PREFETCH(p) __builtin_prefetch(p)
    #else
    #define FF_PREFETCH(p) ((void)(p))
    #endif
    """
    void FF_PREFETCH(const void *p) noexcept nogil


cdef extern from *:
    """
    #include <time.h>
    static inline int64_t ff_clock_ns(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    }
    """
    int64_t ff_clock_ns() noexcept nogil


cdef enum:
    FORESEEN = 16                   # entries whose headers are looked at to size a block
    FORESEEN_ROWS = 1 << 20         # and what is believed of them at once: 43 MB of columns, untouched until rows are there
    ARENA_FULL = 8 << 20            # a new block begins beyond this: bounds what one block pins
    ARENA_SLACK = 1 << 17           # compressed blocks may inflate to 128 KiB each, whatever they really hold
    BLOCK_SPAN = 0x7FFFFFFF         # starts in a block are int32
    TIMED_SHIFT = 18                # one entry is timed in about 2^18 bytes, a record counting 64 more; every one that is as large
    FAULTS_NS = 10000               # a few page faults
    CLOCK_NS = 1000                 # a look at the clock takes no longer; another program's turn in the middle of one does

cdef int64_t INT64_HIGHEST = <int64_t>0x7FFFFFFFFFFFFFFF


# Timing. A small entry takes 200 ns, and looking at the clock five times takes 100. So an entry is timed with a probability that grows
# with its size, and what it took counts for as many times as that was unlikely: the sums are right on average and cost less than a
# hundredth. The draw is made of the entry's own CRC and offset: no state between calls and threads, no beat with whatever comes in turns.

cdef inline uint64_t effort(const ff_entry *entry) noexcept nogil:
    return entry.size + 64 * <uint64_t><uint32_t>entry.count


cdef inline bint is_timed(const ff_entry *entry) noexcept nogil:
    cdef uint32_t draw = (entry.crc ^ <uint32_t>entry.offset) * <uint32_t>0x9E3779B1
    return draw <= effort(entry) << (32 - TIMED_SHIFT)


cdef void start_watch(ff_watch *watch, const ff_entry *entry) noexcept nogil:
    watch.weight = max(1.0, <double>(1 << TIMED_SHIFT) / <double>effort(entry))
    watch.at_ns = ff_clock_ns()
    watch.cost_ns = min(ff_clock_ns() - watch.at_ns, <int64_t>CLOCK_NS)
    watch.at_ns = ff_clock_ns()


cdef void lap(ff_watch *watch, size_t size, int64_t *sum) noexcept nogil:
    """What has passed since the last lap is added to `sum`, but for a turn of another program: no stage is slower than 16 ns a byte."""
    cdef int64_t now = ff_clock_ns()
    cdef int64_t took = min(now - watch.at_ns - watch.cost_ns, <int64_t>(FAULTS_NS + 16 * size))
    sum[0] += <int64_t>(watch.weight * <double>max(took, <int64_t>0))
    watch.at_ns = now


cdef void foresee(const ff_task *task, const ff_entry *first, bint arena, uint64_t *rows, uint64_t *wire) noexcept nogil:
    """Rows and bytes of the block that begins with this entry, by the next few headers; if they do not end it, the rest is taken to be
    like them. A guess: counts are only believed as far as the bytes of their batch could hold them, and a block can grow."""
    cdef ff_entry entry = first[0]
    cdef uint64_t likely, left
    cdef size_t at = <size_t>(first.data - task.data)
    cdef bint compressed
    cdef int _seen
    rows[0] = wire[0] = 0
    for _seen in range(FORESEEN):
        compressed = (entry.attributes & FF_CODEC_MASK) != 0
        if not entry.attributes & FF_ATTRIBUTE_CONTROL:
            if compressed != arena or wire[0] > ARENA_FULL:
                return
            likely = entry.size // FF_RECORD_MIN * (8 if compressed else 1)
            if entry.count >= 0 and <uint64_t>entry.count < likely:
                likely = <uint64_t>entry.count
            rows[0] += likely
        wire[0] += entry.size
        at += entry.size
        if ff_next_entry(task.data, task.n, at, &entry) != FF_OK:
            return
    left = min(<uint64_t>(task.n - at), <uint64_t>ARENA_FULL)
    rows[0] += rows[0] * left // wire[0] * 9 // 8
    wire[0] += left


cdef int open_run(ff_task *task, const ff_entry *first, bint arena, ff_run **run) noexcept nogil:
    """Begin a block with this entry."""
    cdef ff_run *runs
    cdef ff_run *r
    cdef Py_ssize_t capacity
    cdef uint64_t rows, wire
    if task.runs_n == task.runs_capacity:
        capacity = task.runs_capacity * 2 if task.runs_capacity > 0 else 4
        runs = <ff_run *>realloc(task.runs, <size_t>capacity * sizeof(ff_run))
        if runs == NULL:
            return FF_NO_MEMORY
        task.runs = runs
        task.runs_capacity = capacity
    r = &task.runs[task.runs_n]
    memset(r, 0, sizeof(ff_run))
    r.at = <size_t>(first.data - task.data)
    foresee(task, first, arena, &rows, &wire)
    r.slab_rows = <size_t>min(rows, <uint64_t>FORESEEN_ROWS) + 1
    r.slab = ff_buffer_take(ff_slab_bytes(r.slab_rows), &r.slab_capacity)
    if r.slab == NULL:
        return FF_NO_MEMORY
    if arena:
        r.arena = ff_buffer_take(<size_t>min(wire * 4, <uint64_t>ARENA_FULL) + 4 * ARENA_SLACK, &r.arena_capacity)
        if r.arena == NULL:
            ff_buffer_give(r.slab, r.slab_capacity)
            return FF_NO_MEMORY
    task.runs_n += 1
    run[0] = r
    return FF_OK


cdef int room_for_rows(ff_run *run, size_t more) noexcept nogil:
    """Room for that many more rows; the columns move if there is none."""
    cdef size_t rows = <size_t>run.rows + more
    cdef size_t capacity
    cdef void *slab
    cdef ff_columns old, new
    if rows <= run.slab_rows:
        return FF_OK
    rows = max(rows, run.slab_rows * 2)
    slab = ff_buffer_take(ff_slab_bytes(rows), &capacity)
    if slab == NULL:
        return FF_NO_MEMORY
    old = ff_columns_of(run.slab, run.slab_rows)
    new = ff_columns_of(slab, rows)
    ff_columns_copy(&new, &old, 0, <size_t>run.rows)
    ff_buffer_give(run.slab, run.slab_capacity)
    run.slab = slab
    run.slab_rows = rows
    run.slab_capacity = capacity
    return FF_OK


cdef void close_run(ff_task *task) noexcept nogil:
    """The last block gets no more entries. One without rows vanishes; one much larger than its content is cut to size."""
    cdef ff_run *run
    cdef ff_columns old, new
    cdef void *smaller
    cdef size_t capacity
    if task.runs_n == 0:
        return
    run = &task.runs[task.runs_n - 1]
    if run.rows == 0:
        task.runs_n -= 1
        ff_buffer_give(run.slab, run.slab_capacity)
        ff_buffer_give(run.arena, run.arena_capacity)
        return
    if run.slab_rows > <size_t>run.rows * 2 + 1024:
        smaller = ff_buffer_take(ff_slab_bytes(<size_t>run.rows), &capacity)
        if smaller != NULL:
            old = ff_columns_of(run.slab, run.slab_rows)
            new = ff_columns_of(smaller, <size_t>run.rows)
            ff_columns_copy(&new, &old, 0, <size_t>run.rows)
            ff_buffer_give(run.slab, run.slab_capacity)
            run.slab = smaller
            run.slab_rows = <size_t>run.rows
            run.slab_capacity = capacity
    if run.arena != NULL and run.arena_capacity // 4 > run.arena_used + ARENA_SLACK:
        smaller = realloc(run.arena, run.arena_used + 1)
        if smaller != NULL:
            run.arena = smaller
            run.arena_capacity = run.arena_used + 1


cdef int inflate_payload(ff_task *task, const ff_entry *entry, const uint8_t *src, size_t n, ff_run *run, size_t *size) noexcept nogil:
    """Inflate into the arena behind what is there; arena_used stays until the rows are in."""
    cdef int codec = entry.attributes & FF_CODEC_MASK
    cdef uint64_t limit = task.max_batch_bytes
    cdef uint64_t room
    cdef ff_plan plan
    cdef void *arena
    cdef int64_t got
    cdef int status
    if n == 0:
        return FF_BAD_INFLATE
    status = ff_plan_inflate(codec, src, n, &task.stats.trailing_bytes, &plan)
    if status != FF_OK:
        return status
    if plan.least > limit:
        task.declared = <int64_t>min(plan.least, <uint64_t>INT64_HIGHEST)
        return FF_TOO_LARGE
    room = max(min(plan.guess, limit), <uint64_t>1)
    while True:
        if run.arena_capacity - run.arena_used < room:
            arena = ff_buffer_grow(run.arena, run.arena_used + <size_t>room, &run.arena_capacity)
            if arena == NULL:
                return FF_NO_MEMORY
            run.arena = arena
        # Not all that the arena has: what a block larger than its frame allows gives must not depend on what happens to be free.
        room = min(min(<uint64_t>(run.arena_capacity - run.arena_used), limit), plan.most)
        task.codecs.unused = 0
        got = ff_inflate(task.codecs, codec, entry.magic, src, n, <uint8_t *>run.arena + run.arena_used, <size_t>room)
        if got >= 0:
            size[0] = <size_t>got
            task.stats.trailing_bytes += task.codecs.unused
            task.stats.inflated_bytes += got
            return FF_OK
        if got != -FF_OUTPUT_FULL:
            return <int>-got
        if room >= plan.most:           # all the room it can need, and still not enough
            return FF_BAD_INFLATE
        if room >= limit:
            return FF_TOO_LARGE
        room = min(room * 2, limit)


cdef inline void begin_walk(ff_task *task, ff_run *run, ff_columns *columns, ff_walk *walk) noexcept nogil:
    columns[0] = ff_columns_of(run.slab, run.slab_rows)
    walk.columns = columns
    walk.position = task.position
    walk.next_offset = task.next_offset
    walk.rows = run.rows
    walk.index = 0
    walk.offset = -1
    walk.dropped = 0
    walk.null_lengths = 0


cdef inline void end_walk(ff_task *task, ff_run *run, ff_walk *walk, int magic, int status) noexcept nogil:
    if walk.rows > run.rows:
        run.next_offset = walk.next_offset
        if magic < 2:
            if run.old_end == 0:
                run.old_first = run.rows
            run.old_end = walk.rows
    task.stats.records += walk.rows - run.rows
    run.rows = walk.rows
    task.next_offset = walk.next_offset
    task.stats.records_dropped += walk.dropped
    task.stats.null_lengths += walk.null_lengths
    if status != FF_OK:
        task.record_index = walk.index
        task.record_offset = walk.offset


cdef int deliver(ff_task *task, const ff_entry *entry, ff_run *run, bint timed) noexcept nogil:
    """The rows of one entry into the block. CRC and offset ranges have been proved."""
    cdef ff_walk walk
    cdef ff_columns columns
    cdef const uint8_t *payload
    cdef size_t size = 0
    cdef int32_t count
    cdef int64_t last_offset
    cdef int status
    cdef bint compressed = (entry.attributes & FF_CODEC_MASK) != 0
    if entry.magic == 2:
        if entry.count < 0:
            return FF_BAD_COUNT
        payload = entry.data + FF_BATCH_HEADER
        size = entry.size - FF_BATCH_HEADER
    elif compressed:
        status = ff_message_value(entry, &payload, &size)
        if status != FF_OK:
            return status
    if compressed:
        status = inflate_payload(task, entry, payload, size, run, &size)
        if timed:
            lap(&task.watch, size, &task.stats.inflate_ns)
        if status != FF_OK:
            return status
        payload = <const uint8_t *>run.arena + run.arena_used
        walk.origin = <const uint8_t *>run.arena
    else:
        walk.origin = task.data + run.at
    if entry.magic == 2:
        if <size_t>entry.count > size // FF_RECORD_MIN:      # before a row is made room for
            return FF_BAD_COUNT
        count = entry.count
    elif compressed:
        status = ff_inner_count(entry, payload, size, &count, &last_offset)
        if status != FF_OK:
            return status
    else:
        count = 1
    if room_for_rows(run, <size_t>count) != FF_OK:
        return FF_NO_MEMORY
    begin_walk(task, run, &columns, &walk)
    if entry.magic == 2:
        status = ff_walk_records(entry, payload, size, &walk)
    elif compressed:
        status = ff_walk_inner(entry, payload, size, last_offset, &walk)
    else:
        status = ff_walk_message(entry, &walk)
    if timed:
        lap(&task.watch, size, &task.stats.walk_ns)
    if compressed and walk.rows > run.rows:
        run.arena_used += size
    elif not compressed:
        run.size = <size_t>(entry.data - task.data) + entry.size - run.at
    end_walk(task, run, &walk, entry.magic, status)
    if status == FF_OK and walk.rows > 0:
        run.next_offset = max(walk.next_offset, ff_entry_next(entry))
    return status


cdef int check_entry(ff_task *task, const ff_entry *entry, int action) noexcept nogil:
    """Everything that can be said of an entry before its payload is touched. CRC first: it covers what is looked at next."""
    if task.check_crcs:
        if ff_entry_crc(entry) != entry.crc:
            return FF_BAD_CRC
        task.stats.crc_checked_bytes += <int64_t>entry.size
    if ff_entry_offsets(entry) != FF_OK:
        return FF_BAD_OFFSET
    if action == FF_REFUSE_MARKER:
        return FF_BAD_MARKER
    if action == FF_DELIVER:
        if entry.attributes & FF_CODEC_MASK > (FF_CODEC_ZSTD if entry.magic == 2 else FF_CODEC_LZ4):
            return FF_BAD_CODEC
        if entry.size > <size_t>BLOCK_SPAN:
            return FF_TOO_LARGE
    return FF_OK


cdef inline bint run_is_full(const ff_task *task, const ff_run *run, const ff_entry *entry) noexcept nogil:
    if entry.magic < 2 and 0 < run.old_end < run.rows:       # a block has one stretch of old rows
        return True
    if run.arena == NULL:
        return <size_t>(entry.data - task.data) + entry.size - run.at > <size_t>BLOCK_SPAN
    return run.arena_used > ARENA_FULL or run.arena_used + task.max_batch_bytes > <size_t>BLOCK_SPAN and run.arena_used > 0


cdef void ff_run_task(ff_task *task) noexcept nogil:
    """Do the steps until the end or the first error. The blocks made so far are good in either case."""
    cdef ff_entry entry
    cdef ff_run *run = NULL
    cdef bint compressed, timed
    cdef int action
    cdef int status = FF_OK
    task.record_index = -1
    task.record_offset = -1
    task.declared = -1
    while True:
        if task.planner != NULL:
            status = ff_plan_next(task.planner, &entry, &action)
            if status != FF_OK:
                if status == FF_PARTIAL:
                    status = FF_OK
                break
        elif task.done < task.steps_n:
            action = task.steps[task.done].action
            ff_next_entry(task.data, task.n, task.steps[task.done].at, &entry)
        else:
            break
        task.at = <size_t>(entry.data - task.data)
        if <uint64_t>task.stats.inflated_bytes + ff_slab_bytes(<size_t>task.stats.records) > task.enough:
            task.stopped = True
            break
        FF_PREFETCH(entry.data + entry.size)         # the next header: a small batch is over before it is there by itself
        timed = is_timed(&entry)
        if timed:
            start_watch(&task.watch, &entry)
        status = check_entry(task, &entry, action)
        if timed:
            lap(&task.watch, entry.size, &task.stats.crc_ns)
        if status != FF_OK:
            break
        if action == FF_DELIVER:
            compressed = (entry.attributes & FF_CODEC_MASK) != 0
            if run == NULL or compressed != (run.arena != NULL) or run_is_full(task, run, &entry):
                close_run(task)
                run = NULL
                status = open_run(task, &entry, compressed, &run)
                if status != FF_OK:
                    break
            status = deliver(task, &entry, run, timed)
            if status != FF_OK:
                break
        else:
            task.stats.batches_skipped += 1
            if action == FF_PASS_BELOW and ff_entry_next(&entry) > task.position:
                task.stats.records_dropped += max(entry.count, 0)    # repeats what came before
        task.stats.batches += 1
        if ff_entry_next(&entry) > task.next_offset:
            task.next_offset = ff_entry_next(&entry)
        task.done += 1
    task.status = status
    close_run(task)


cdef void ff_free_runs(ff_task *task) noexcept nogil:
    """Give back what nobody took over."""
    cdef Py_ssize_t i
    for i in range(task.runs_n):
        ff_buffer_give(task.runs[i].slab, task.runs[i].slab_capacity)
        ff_buffer_give(task.runs[i].arena, task.runs[i].arena_capacity)
    free(task.runs)
    task.runs = NULL
    task.runs_n = 0
