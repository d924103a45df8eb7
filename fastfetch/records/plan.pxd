"""What to do with each entry of a record set."""

from fastfetch.kernels.frames cimport ff_entry
from fastfetch.kernels.wire cimport *
from fastfetch.records.aborted cimport ff_aborted


cdef enum ff_action:
    FF_DELIVER
    FF_PASS_BELOW           # wholly below the position
    FF_PASS_ABORTED
    FF_PASS_CONTROL
    FF_PASS_EMPTY
    FF_REFUSE_MARKER        # control batch that is no marker, under read_committed


ctypedef struct ff_planner:
    # set by the caller
    const uint8_t *data
    size_t n
    int64_t next_offset     # starts as the position; moves: the next offset after the entries planned, by their headers
    ff_aborted *aborted     # NULL: read_uncommitted
    bint check_crcs
    ff_codecs *codecs
    # results
    size_t end              # how far planning came: the end of the last whole entry
    int status              # why it stopped there: FF_OK (no bytes left), FF_PARTIAL, or a framing error
    bint stopped            # at an entry that the run will refuse
    bint legacy             # there are compressed messages, whose last offset is known only once inflated


ctypedef struct ff_step:    # one entry and what to do with it
    size_t at
    int action


ctypedef struct ff_steps:
    ff_step *items
    Py_ssize_t n
    Py_ssize_t capacity


cdef int ff_plan_next(ff_planner *planner, ff_entry *entry, int *action) noexcept nogil
cdef int ff_plan_all(ff_planner *planner, ff_steps *steps) noexcept nogil
