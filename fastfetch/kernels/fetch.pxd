"""The walk over one fetch response: open it, take partition after partition, then the endpoints.

Nothing is copied and nothing allocated: what comes out are numbers, and pointers into the frame. fetch.h holds the documentation.
"""

from fastfetch.kernels.wire cimport *


cdef extern from "fastfetch/fetch.h" nogil:
    enum:
        FF_FETCH_OLDEST
        FF_FETCH_NEWEST

    ctypedef enum ff_fetch_field:
        FF_FETCH_HEADER
        FF_FETCH_HEADER_TAGS
        FF_FETCH_TOPICS
        FF_FETCH_TOPIC
        FF_FETCH_PARTITIONS
        FF_FETCH_PARTITION
        FF_FETCH_ABORTED
        FF_FETCH_REPLICA
        FF_FETCH_RECORDS
        FF_FETCH_PARTITION_TAGS
        FF_FETCH_TOPIC_TAGS
        FF_FETCH_TAGS
        FF_FETCH_ENDPOINTS

    ctypedef struct ff_fetch_walk:
        ff_reader r
        const uint8_t *data
        int version
        bint flexible
        int32_t correlation_id
        int32_t throttle_time_ms
        int16_t error_code
        int32_t session_id
        int64_t topics_left
        int64_t partitions_left
        int64_t topic_index
        int64_t partition_index
        const uint8_t *topic
        size_t topic_size
        const uint8_t *topic_id
        ff_reader endpoints
        int64_t endpoints_left
        int field
        size_t field_at

    ctypedef struct ff_fetch_partition:
        int32_t partition
        int16_t error_code
        int64_t high_watermark
        int64_t last_stable_offset
        int64_t log_start_offset
        int64_t aborted_count
        ff_reader aborted
        int32_t preferred_read_replica
        int64_t records_size
        const uint8_t *records
        int32_t diverging_epoch
        int64_t diverging_end_offset
        int32_t leader_id
        int32_t leader_epoch

    ctypedef struct ff_fetch_endpoint:
        int32_t node_id
        const uint8_t *host
        int64_t host_size
        int32_t port
        const uint8_t *rack
        int64_t rack_size


cdef int ff_fetch_open(ff_fetch_walk *w, const uint8_t *data, size_t n, int version) noexcept nogil
cdef int ff_fetch_next(ff_fetch_walk *w, ff_fetch_partition *p, bint *more) noexcept nogil
cdef void ff_fetch_next_aborted(ff_reader *r, bint flexible, int64_t *producer_id, int64_t *first_offset) noexcept nogil
cdef bint ff_fetch_next_endpoint(ff_fetch_walk *w, ff_fetch_endpoint *e) noexcept nogil
cdef const char *ff_fetch_field_text(int field) noexcept nogil
