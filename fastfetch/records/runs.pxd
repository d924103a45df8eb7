"""From planned entries to finished blocks, as C structs: the part of decode() that needs no GIL."""

from fastfetch.kernels.wire cimport *
from fastfetch.records.plan cimport ff_planner, ff_step


ctypedef struct ff_run:     # a finished block
    void *arena             # inflated bytes, or NULL: the block lies in the input
    size_t arena_used
    size_t arena_capacity
    size_t at               # where in the input
    size_t size
    void *slab
    size_t slab_capacity    # bytes
    size_t slab_rows        # stride of the columns
    Py_ssize_t rows
    int64_t next_offset
    Py_ssize_t old_first    # rows [old_first, old_end) are of magic 0 and 1: what lies before a key depends on it
    Py_ssize_t old_end


ctypedef struct ff_stats:
    int64_t batches
    int64_t batches_skipped
    int64_t crc_checked_bytes
    int64_t records
    int64_t records_dropped
    int64_t null_lengths
    int64_t trailing_bytes
    int64_t inflated_bytes
    int64_t crc_ns              # these three are estimates: see runs.pyx
    int64_t inflate_ns
    int64_t walk_ns


ctypedef struct ff_watch:   # times one entry in many
    double weight               # how many times its own time the present entry stands for
    int64_t at_ns
    int64_t cost_ns             # of reading the clock, not to be taken for the entry's


ctypedef struct ff_task:
    # set by the caller
    const uint8_t *data
    size_t n                    # where this task's stretch of the data ends
    ff_planner *planner         # plan each entry just before it is decoded; or NULL: `steps` has been planned
    const ff_step *steps
    Py_ssize_t steps_n
    int64_t position            # records below it are passed over in silence
    int64_t next_offset         # moves: the next offset after what is done
    uint64_t max_batch_bytes
    uint64_t enough             # stop before an entry once this many bytes have been made
    bint check_crcs
    ff_codecs *codecs
    # results
    ff_run *runs
    Py_ssize_t runs_n
    Py_ssize_t runs_capacity
    Py_ssize_t done             # entries done
    size_t at                   # where the entry begins that ended it: a bad one, or one too many
    bint stopped                # enough has been made
    int status
    int32_t record_index        # -1: the batch as a whole
    int64_t record_offset       # -1: unknown
    int64_t declared            # size the payload claims, -1: none
    ff_watch watch
    ff_stats stats


cdef void ff_run_task(ff_task *task) noexcept nogil
cdef void ff_free_runs(ff_task *task) noexcept nogil
