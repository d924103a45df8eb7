"""Which batches belong to aborted transactions."""

from libc.stdint cimport int64_t


ctypedef struct ff_aborted:
    Py_ssize_t n                # transactions, by first offset
    const int64_t *first_offsets
    const int64_t *transactions     # index into `producers` of each
    Py_ssize_t pending          # the first transaction not reached yet
    Py_ssize_t producers_n
    const int64_t *producers    # producer ids, ascending
    signed char *active         # is the producer inside an aborted transaction?


cdef class AbortedTransactions:
    cdef ff_aborted c
    cdef object columns         # keeps the arrays alive


cdef void ff_aborted_reach(ff_aborted *aborted, int64_t last_offset) noexcept nogil
cdef bint ff_aborted_has(const ff_aborted *aborted, int64_t producer_id) noexcept nogil
cdef void ff_aborted_end(ff_aborted *aborted, int64_t producer_id) noexcept nogil
