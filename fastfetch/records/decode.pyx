"""decode(): the only door to the kernels. A pure function from the bytes of one partition to blocks, the next offset, and an error if
there was one, beside the good records before it.

Order of checks for each entry: length and magic, CRC (it covers the very fields looked at next), offsets, codec, count, inflate, records.
Threads that share a large response live and die within the call.
"""

import _thread

cimport cython
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from libc.stdlib cimport free
from libc.string cimport memset

from fastfetch import errors
from fastfetch.kernels.codecs cimport Codecs, acquire_codecs, release_codecs
from fastfetch.kernels.frames cimport ff_entry, ff_entry_crc, ff_entry_next, ff_entry_offsets, ff_next_entry
from fastfetch.kernels.wire cimport *
from fastfetch.records.aborted cimport AbortedTransactions
from fastfetch.records.block cimport RecordBlock, make_block
from fastfetch.records.buffers cimport Buffer, own_buffer
from fastfetch.records.plan cimport ff_plan_all, ff_planner, ff_steps
from fastfetch.records.runs cimport ff_free_runs, ff_run, ff_run_task, ff_stats, ff_task


cdef enum:
    THREAD_MIN_BYTES = 1 << 18      # a thread costs about as much as decoding this


@cython.final
cdef class DecodeStats:
    """Counts of one decode().

    batches            seen whole              batches_skipped  of these: below the position, aborted, control, empty
    records            delivered               records_dropped  repeated an offset or went back
    crc_checked_bytes  of whole batches        inflated_bytes   produced by decompressors
    null_lengths       below -1, read as null  trailing_bytes   ignored behind compressed data
    crc_ns             checking CRCs           inflate_ns       inflating
    walk_ns            walking records into columns

    The times are estimates: one batch in about 256 KiB or 4000 records is timed and stands for the others. They are right in sums
    over many calls, and may be 0 or far off for a small one. Threads that share a call count each by itself.
    """

    cdef readonly int64_t batches, batches_skipped, crc_checked_bytes, records
    cdef readonly int64_t records_dropped, null_lengths, trailing_bytes, inflated_bytes
    cdef readonly int64_t crc_ns, inflate_ns, walk_ns

    cdef void add(self, const ff_stats *s) noexcept:
        self.batches += s.batches
        self.batches_skipped += s.batches_skipped
        self.crc_checked_bytes += s.crc_checked_bytes
        self.records += s.records
        self.records_dropped += s.records_dropped
        self.null_lengths += s.null_lengths
        self.trailing_bytes += s.trailing_bytes
        self.inflated_bytes += s.inflated_bytes
        self.crc_ns += s.crc_ns
        self.inflate_ns += s.inflate_ns
        self.walk_ns += s.walk_ns

    def as_dict(self) -> dict:
        return {name: getattr(self, name) for name in (
            "batches", "batches_skipped", "crc_checked_bytes", "records", "records_dropped", "null_lengths", "trailing_bytes",
            "inflated_bytes", "crc_ns", "inflate_ns", "walk_ns")}

    def __repr__(self):
        return f"DecodeStats({', '.join(f'{name}={value}' for name, value in self.as_dict().items())})"


@cython.final
cdef class Decoded:
    """What decode() returns.

    blocks       list[RecordBlock]: good records, in order, at or above the position
    next_offset  where to fetch next; with an error, the offset to stay at; None: no whole batch and no position given
    error        None, or a CorruptBatchError for the batch at `consumed`; returned, not raised
    consumed     bytes of whole good batches; what follows is a partial trailing batch, or the bad one
    stats        DecodeStats
    """

    cdef readonly list blocks
    cdef readonly object next_offset
    cdef readonly object error
    cdef readonly Py_ssize_t consumed
    cdef readonly DecodeStats stats

    def __len__(self):
        return self.stats.records

    def __iter__(self):
        for block in self.blocks:
            yield from block

    def raise_for_error(self) -> None:
        """Raise `error` if there is one."""
        if self.error is not None:
            raise self.error

    def __repr__(self):
        return f"Decoded({len(self)} records in {len(self.blocks)} blocks, next_offset={self.next_offset}, error={self.error!r})"


@cython.final
cdef class Job:
    """One thread's stretch of the steps."""

    cdef ff_task task
    cdef Codecs codecs
    cdef object finished                # lock, held while a thread of its own works on it

    def run(self):
        with nogil:
            ff_run_task(&self.task)

    def run_in_thread(self):
        self.run()
        self.finished.release()

    def __dealloc__(self):
        ff_free_runs(&self.task)


cdef dict _kinds = {
    FF_BAD_LENGTH: (errors.CorruptBatchError, "length"),
    FF_BAD_MAGIC: (errors.CorruptBatchError, "magic"),
    FF_UNSUPPORTED_MAGIC: (errors.UnsupportedMagicError, "magic"),
    FF_BAD_OFFSET: (errors.CorruptBatchError, "offset"),
    FF_BAD_CRC: (errors.CrcMismatchError, "crc"),
    FF_BAD_CODEC: (errors.UnsupportedCodecError, "codec"),
    FF_MISSING_CODEC: (errors.UnsupportedCodecError, "codec"),
    FF_BAD_INFLATE: (errors.DecompressionError, "inflate"),
    FF_TOO_LARGE: (errors.BatchTooLargeError, "too_large"),
    FF_BAD_COUNT: (errors.InvalidRecordError, "count"),
    FF_MISSING_RECORDS: (errors.InvalidRecordError, "count"),
    FF_LEFT_OVER: (errors.InvalidRecordError, "count"),
    FF_BAD_MARKER: (errors.InvalidRecordError, "marker"),
}
cdef tuple _record_kind = (errors.InvalidRecordError, "record")
cdef tuple _codec_names = ("none", "gzip", "snappy", "lz4", "zstd")
cdef dict _packages = {FF_CODEC_LZ4: "lz4", FF_CODEC_ZSTD: "zstandard", FF_CODEC_GZIP: "zlib"}


cdef bint skip_target(const uint8_t *data, size_t n, const ff_entry *bad, int status, int64_t stays, int64_t *target) noexcept nogil:
    """Where may a reader go on behind a bad entry? Only at an offset that a right CRC vouches for.

    CRC right: the batch's own end. CRC wrong: the next batch, if it stands where the bad one says it ends, its header is sane, its own CRC
    is right and it lies above. Nothing inside the bad batch is searched for a batch: a record's value may hold one.
    """
    cdef ff_entry next_entry
    cdef size_t at
    if status == FF_BAD_LENGTH or status == FF_BAD_MAGIC or status == FF_UNSUPPORTED_MAGIC or status == FF_BAD_OFFSET:
        return False
    if ff_entry_crc(bad) == bad.crc:
        if ff_entry_offsets(bad) != FF_OK:
            return False
        target[0] = ff_entry_next(bad)
        return True
    at = <size_t>(bad.data - data) + bad.size
    if ff_next_entry(data, n, at, &next_entry) != FF_OK or ff_entry_offsets(&next_entry) != FF_OK:
        return False
    if next_entry.offset <= stays or ff_entry_crc(&next_entry) != next_entry.crc:
        return False
    if next_entry.magic < 2 and next_entry.attributes & FF_CODEC_MASK:
        return False                     # a wrapper's offset is that of its last message: going on there would lose the others
    target[0] = next_entry.offset
    return True


cdef object make_error(
        const uint8_t *data, size_t n, size_t at, int status, const ff_task *task, object next_offset, str topic, int partition):
    """The exception for the entry at `at`. `task` NULL: its framing is bad."""
    cdef ff_entry entry
    cdef int64_t target = 0
    cdef int codec
    cdef bint trusted
    cdef object detail = ""
    memset(&entry, 0, sizeof(entry))
    ff_next_entry(data, n, at, &entry)
    cls, kind = _kinds.get(status, _record_kind)
    position = next_offset if next_offset is not None else entry.offset
    trusted = skip_target(data, n, &entry, status, position, &target)
    more = {"status": status}                # for capi.h
    if status == FF_BAD_CRC:
        more["stored"] = entry.crc
        more["computed"] = ff_entry_crc(&entry)
        detail = f"stored {more['stored']:08x}, computed {more['computed']:08x}"
    elif status == FF_BAD_MAGIC or status == FF_UNSUPPORTED_MAGIC:
        detail = f"magic {entry.magic}"
    elif status == FF_BAD_OFFSET:
        detail = f"base offset {entry.offset}, last offset delta {entry.last_offset_delta}"
    elif cls is errors.UnsupportedCodecError:
        codec = entry.attributes & FF_CODEC_MASK
        more["codec"] = codec
        if status == FF_MISSING_CODEC:
            more["package"] = _packages[codec]
            detail = f"{_codec_names[codec]} (id {codec}) needs the package {_packages[codec]!r}, which is not installed"
        else:
            detail = f"codec id {codec}"
    elif status == FF_TOO_LARGE:
        more["limit"] = task.max_batch_bytes
        more["declared"] = task.declared if task.declared >= 0 else None
        detail = f"limit {task.max_batch_bytes} bytes (max_batch_bytes)"
        if task.declared >= 0:
            detail += f", declared {task.declared}"
    elif cls is errors.InvalidRecordError:
        more["record_index"] = task.record_index if task.record_index >= 0 else None
        more["offset"] = task.record_offset if task.record_offset >= 0 else None
        detail = f"record {task.record_index} of {entry.count}" if task.record_index >= 0 else f"{entry.count} records declared"
    text = (<bytes>ff_status_text(status)).decode()
    return cls(
        text[0].upper() + text[1:], topic=topic, partition=partition, position=position, base_offset=entry.offset,
        next_offset=target if trusted else None, skip_trusted=trusted, byte_pos=at, kind=kind, size=entry.size or None,
        detail=detail, **more)


cdef list split_steps(const ff_steps *steps, size_t n, int threads):
    """Bounds of about equal bytes: [0, …, steps.n]."""
    cdef list bounds = [0]
    cdef Py_ssize_t i
    cdef int part
    for part in range(1, threads):
        i = bounds[part - 1]
        while i < steps.n and steps.items[i].at < <size_t>(n // <size_t>threads) * <size_t>part:
            i += 1
        bounds.append(i)
    bounds.append(steps.n)
    return bounds


cdef int64_t next_before(const uint8_t *data, size_t n, const ff_steps *steps, Py_ssize_t stop, int64_t running) noexcept nogil:
    """The next offset as the steps before `stop` leave it, by their headers."""
    cdef ff_entry entry
    cdef Py_ssize_t i
    for i in range(stop):
        ff_next_entry(data, n, steps.items[i].at, &entry)
        if ff_entry_offsets(&entry) == FF_OK and ff_entry_next(&entry) > running:
            running = ff_entry_next(&entry)
    return running


cdef void run_jobs(list jobs):
    """The first job here, the others in threads of their own. Whatever happens, nobody works on the bytes any more when this returns or
    raises: an interrupt (Ctrl-C) that arrives meanwhile is raised afterwards, or the steps would be freed under a running thread."""
    cdef Job job
    cdef list started = []
    interrupted = None
    try:
        for job in jobs[1:]:
            job.finished = _thread.allocate_lock()
            job.finished.acquire()
            try:
                # Not threading.Thread: its start() and join() are Python code, in which a signal handler may raise half-way.
                _thread.start_new_thread(job.run_in_thread, ())
            except RuntimeError:                 # no thread to be had: then here
                job.run()
            else:
                started.append(job)
        (<Job>jobs[0]).run()
    finally:
        for job in started:
            while True:
                try:
                    job.finished.acquire()
                    break
                except BaseException as error:
                    interrupted = error
    if interrupted is not None:
        raise interrupted


def decode(
    data,
    *,
    position=None,
    isolation="read_uncommitted",
    aborted=(),
    check_crcs=True,
    max_batch_bytes=64 << 20,
    max_bytes=None,
    topic="",
    partition=0,
    threads=1,
    lz4_content_checksum=True,
):
    """Decode the record batches of one partition: the `records` bytes of a fetch response, or the bytes of a log segment.

    data                  bytes-like; blocks of uncompressed batches are views of it and keep it alive
    position              records below this offset are passed over; None: none are
    isolation             "read_committed": records of aborted transactions are left out; "read_uncommitted": `aborted` is ignored
    aborted               iterable of (producer_id, first_offset) of the response, or None
    check_crcs            compare each batch's CRC before anything it covers is used
    max_batch_bytes       limit of one batch's inflated size, 1 .. 2^31 - 1
    max_bytes             end between two batches once the blocks hold more than this, columns and inflated bytes together; at least one
                          batch is decoded. `next_offset` and `consumed` say how far it went. None: no such limit
    threads               a large input is shared by this many threads, with the same result; each has max_bytes of its own
    lz4_content_checksum  False: a wrong LZ4 content checksum is accepted, as Java does

    Never raises for what is in the bytes: see Decoded.error. Raises TypeError or ValueError for bad arguments, MemoryError.
    """
    cdef AbortedTransactions filter = None
    cdef int64_t start = 0
    cdef uint64_t limit
    cdef uint64_t enough = <uint64_t>-1
    cdef int wanted = threads
    cdef bint check = check_crcs
    cdef bint lax = not lz4_content_checksum
    if isolation == "read_committed":
        filter = AbortedTransactions(aborted)
    elif isolation != "read_uncommitted":
        raise ValueError(f'isolation must be "read_uncommitted" or "read_committed"; got {isolation!r}')
    if position is not None:
        start = position
        if start < 0:
            raise ValueError(f"position must be an offset >= 0 or None; got {position}")
    if not 1 <= max_batch_bytes <= 0x7FFFFFFF:
        raise ValueError(f"max_batch_bytes must be 1 .. 2147483647; got {max_batch_bytes}")
    if wanted < 1:
        raise ValueError(f"threads must be at least 1; got {threads}")
    limit = max_batch_bytes
    if max_bytes is not None:
        if max_bytes < 0:
            raise ValueError(f"max_bytes must be 0 or more, or None; got {max_bytes}")
        enough = min(max_bytes, 0x7FFFFFFFFFFFFFFF)
    view = memoryview(data).toreadonly()
    if view.ndim != 1 or view.format != "B" or not view.c_contiguous:
        view = view.cast("B")
    return decode_view(view, position is not None, start, filter, check, limit, enough, str(topic), partition, wanted, lax)


cdef Decoded decode_view(
        object view, bint positioned, int64_t start, AbortedTransactions filter, bint check, uint64_t limit, uint64_t enough,
        str topic, int partition, int threads, bint lax):
    cdef const uint8_t *data = <const uint8_t *>PyMemoryView_GET_BUFFER(view).buf
    cdef size_t n = <size_t>PyMemoryView_GET_BUFFER(view).len
    cdef Codecs codecs = acquire_codecs(not lax)
    cdef ff_planner planner
    cdef ff_steps steps
    cdef Decoded out = Decoded.__new__(Decoded)
    cdef Job job
    cdef list jobs = []
    cdef list bounds
    cdef Py_ssize_t i, first, last
    cdef int status
    cdef bint planned = False
    cdef int64_t running = start
    out.blocks = []
    out.stats = DecodeStats.__new__(DecodeStats)
    memset(&steps, 0, sizeof(steps))
    memset(&planner, 0, sizeof(planner))
    planner.data = data
    planner.n = n
    planner.next_offset = start
    planner.aborted = &filter.c if filter is not None else NULL
    planner.check_crcs = check
    planner.codecs = &codecs.c
    try:
        if threads > 1 and n >= 2 * THREAD_MIN_BYTES:
            with nogil:
                status = ff_plan_all(&planner, &steps)
            raise_status(status, codecs)
            planned = True
        threads = 1 if not planned or planner.legacy else max(<int>min(<size_t>threads, planner.end // THREAD_MIN_BYTES), 1)
        bounds = split_steps(&steps, planner.end, threads)
        for i in range(threads):
            job = Job.__new__(Job)
            first = bounds[i]
            last = bounds[i + 1]
            job.codecs = codecs if i == 0 else acquire_codecs(not lax)
            job.task.data = data
            job.task.n = n if not planned else steps.items[last].at if last < steps.n else planner.end
            job.task.planner = NULL if planned else &planner
            job.task.steps = steps.items + first
            job.task.steps_n = last - first
            job.task.position = start
            job.task.next_offset = next_before(data, n, &steps, first, start)
            job.task.max_batch_bytes = limit
            job.task.enough = enough
            job.task.check_crcs = check
            job.task.codecs = &job.codecs.c
            jobs.append(job)
        if threads == 1:
            (<Job>jobs[0]).run()
        else:
            run_jobs(jobs)
        # In order, up to the first error: what later threads did behind it is dropped.
        out.consumed = <Py_ssize_t>planner.end
        for i in range(threads):
            job = jobs[i]
            take_runs(out, &job.task, view, topic, partition)
            out.stats.add(&job.task.stats)
            if job.task.done > 0 or job.task.next_offset > running:
                running = max(running, job.task.next_offset)
                positioned = True
            raise_status(job.task.status, job.codecs)
            if job.task.status != FF_OK:
                out.next_offset = running if positioned else None
                out.consumed = <Py_ssize_t>job.task.at
                out.error = make_error(
                    data, n, <size_t>out.consumed, job.task.status, &job.task, out.next_offset, topic, partition)
                return out
            if job.task.stopped:
                out.next_offset = running
                out.consumed = <Py_ssize_t>job.task.at
                return out
        out.next_offset = running if positioned else None
        if planner.status != FF_OK and planner.status != FF_PARTIAL:
            out.error = make_error(data, n, planner.end, planner.status, NULL, out.next_offset, topic, partition)
        return out
    finally:
        free(steps.items)
        release_codecs(codecs)
        for job in jobs[1:]:
            release_codecs(job.codecs)


cdef int raise_status(int status, Codecs codecs) except -1:
    """Statuses that are not about the bytes."""
    if status == FF_NO_MEMORY:
        raise MemoryError("decode: no memory for the inflated records")
    if status == FF_RAISED:
        codecs.raise_pending()
    return 0


cdef void take_runs(Decoded out, ff_task *task, object view, str topic, int partition):
    """Make the finished runs RecordBlocks, which own their memory from then on."""
    cdef Py_ssize_t i
    cdef ff_run *run
    cdef Buffer slab, arena
    cdef RecordBlock block
    cdef object data
    for i in range(task.runs_n):
        run = &task.runs[i]
        slab = own_buffer(run.slab, ff_slab_bytes(run.slab_rows), run.slab_capacity)
        run.slab = NULL
        if run.arena != NULL:
            arena = own_buffer(run.arena, run.arena_used, run.arena_capacity)
            run.arena = NULL             # before anything else can fail: it has an owner
            data = memoryview(arena)
        else:
            data = view[run.at:run.at + run.size]
        block = make_block(topic, partition, run.next_offset, data, slab, run.slab_rows, 0, run.rows)
        block.old_first = run.old_first
        block.old_end = run.old_end
        out.blocks.append(block)
