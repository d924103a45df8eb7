"""confluent-kafka's Message, and a run of them on its way out."""

from libc.stdint cimport int32_t, int64_t


cdef class Message:
    cdef object _topic
    cdef object _key
    cdef object _value
    cdef object _headers
    cdef object _error
    cdef int64_t _offset                # -1: none, as with the other numbers
    cdef int64_t _timestamp
    cdef double _latency
    cdef int32_t _partition
    cdef int32_t _leader_epoch
    cdef int32_t _delivery_count
    cdef signed char _timestamp_type    # librdkafka's

    cdef void hold(self)
    cdef tuple fields(self)


cdef class Ahead:
    cdef object readahead
    cdef dict consumed
    cdef object state                   # whose messages these are
    cdef object ticket                  # and which it had when they were made
    cdef object chunk
    cdef int64_t row                    # of the first message
    cdef object position                # as they were before the first message: position, leader epoch, last message
    cdef object epoch
    cdef object before
    cdef list messages
    cdef Py_ssize_t at                  # the next one
    cdef double until                   # monotonic seconds
    cdef bint has_stepped

    cpdef clear(self)
    cpdef bint is_next(self)
