"""The read_committed filter (KIP-98), by the rule of Java's CompletedFetch:

a transaction of the response's list becomes active when its first offset is at or below a batch's last offset; while a producer is
active its transactional batches are passed over; its abort marker ends that. The list is not trusted to be sorted, unique, or about
producers that occur; commit markers change nothing.
"""

from array import array
from collections.abc import Iterable

cimport cython
from libc.stdint cimport int64_t


@cython.final
cdef class AbortedTransactions:
    """The `aborted` argument of decode(), checked and sorted: (producer_id, first_offset) pairs, or None."""

    def __init__(self, aborted: Iterable | None) -> None:
        cdef const int64_t[::1] first_offsets, transactions, producers
        cdef signed char[::1] active
        pairs = sorted((first, producer) for producer, first in aborted or ())
        ids = sorted({producer for _, producer in pairs})
        index = {producer: i for i, producer in enumerate(ids)}
        self.columns = columns = (
            array("q", [first for first, _ in pairs]),
            array("q", [index[producer] for _, producer in pairs]),
            array("q", ids),
            bytearray(len(ids)),
        )
        if not pairs:
            return
        first_offsets, transactions, producers = columns[0], columns[1], columns[2]
        active = memoryview(columns[3]).cast("b")
        self.c.n = len(pairs)
        self.c.first_offsets = &first_offsets[0]
        self.c.transactions = &transactions[0]
        self.c.producers_n = len(ids)
        self.c.producers = &producers[0]
        self.c.active = &active[0]


cdef inline Py_ssize_t find(const ff_aborted *aborted, int64_t producer_id) noexcept nogil:
    cdef Py_ssize_t low = 0
    cdef Py_ssize_t high = aborted.producers_n
    cdef Py_ssize_t middle
    while low < high:
        middle = (low + high) // 2
        if aborted.producers[middle] < producer_id:
            low = middle + 1
        else:
            high = middle
    if low < aborted.producers_n and aborted.producers[low] == producer_id:
        return low
    return -1


cdef void ff_aborted_reach(ff_aborted *aborted, int64_t last_offset) noexcept nogil:
    """Transactions that begin at or below a batch's last offset become active."""
    while aborted.pending < aborted.n and aborted.first_offsets[aborted.pending] <= last_offset:
        aborted.active[aborted.transactions[aborted.pending]] = 1
        aborted.pending += 1


cdef bint ff_aborted_has(const ff_aborted *aborted, int64_t producer_id) noexcept nogil:
    cdef Py_ssize_t i = find(aborted, producer_id)
    return i >= 0 and aborted.active[i]


cdef void ff_aborted_end(ff_aborted *aborted, int64_t producer_id) noexcept nogil:
    """An abort marker of this producer. One that is not active is normal."""
    cdef Py_ssize_t i = find(aborted, producer_id)
    if i >= 0:
        aborted.active[i] = 0
