"""The walk over one fetch response: open it, take partition after partition, then the endpoints.

Nothing is copied and nothing allocated: what comes out are numbers, and pointers into the frame.
"""

from fastfetch.kernels.wire cimport *


cdef enum ff_fetch_field:
    # What is being read, for the message of an error.
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
    const uint8_t *data             # start of the frame
    int version
    bint flexible                   # from v12
    # the head, filled by ff_fetch_open; 0 where the version has no such field
    int32_t correlation_id
    int32_t throttle_time_ms
    int16_t error_code
    int32_t session_id
    # what is left, and where the walk is; counts are proved to fit into the bytes left
    int64_t topics_left
    int64_t partitions_left
    int64_t topic_index             # of the topic that was read last; -1 before the first
    int64_t partition_index         # within that topic
    const uint8_t *topic            # its name, `topic_size` bytes; NULL from v13
    size_t topic_size
    const uint8_t *topic_id         # its id, 16 bytes; NULL below v13
    # after the last partition
    ff_reader endpoints             # at the first of `endpoints_left`, all proved well formed
    int64_t endpoints_left
    # after a failure: what, and where it starts
    int field
    size_t field_at


ctypedef struct ff_fetch_partition:
    int32_t partition
    int16_t error_code
    int64_t high_watermark
    int64_t last_stable_offset
    int64_t log_start_offset        # -1 below v5
    int64_t aborted_count           # -1: null
    ff_reader aborted               # at the first of them, all proved well formed
    int32_t preferred_read_replica  # -1: none
    int64_t records_size            # -1: null
    const uint8_t *records
    # tagged fields; negative epochs mean that there is none (Java's rule)
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
    int64_t rack_size               # -1: null


cdef int ff_fetch_open(ff_fetch_walk *w, const uint8_t *data, size_t n, int version) noexcept nogil
cdef int ff_fetch_next(ff_fetch_walk *w, ff_fetch_partition *p, bint *more) noexcept nogil
cdef void ff_fetch_next_aborted(ff_reader *r, bint flexible, int64_t *producer_id, int64_t *first_offset) noexcept nogil
cdef bint ff_fetch_next_endpoint(ff_fetch_walk *w, ff_fetch_endpoint *e) noexcept nogil
cdef const char *ff_fetch_field_text(int field) noexcept nogil
