"""The walk over one fetch response, versions 4 to 18.

    int32 correlation_id, [v12: tags]
    int32 throttle_time_ms, [v7: int16 error_code, int32 session_id]
    topics[]: name (v13: uuid)
      partitions[]: int32 partition, int16 error_code, int64 high_watermark, int64 last_stable_offset,
                    [v5: int64 log_start_offset], aborted[]? {int64 producer_id, int64 first_offset, [v12: tags]},
                    [v11: int32 preferred_read_replica], bytes? records,
                    [v12: tags 0 diverging epoch, 1 current leader, 2 snapshot id]
      [v12: tags]
    [v12: tags, v16: 0 node endpoints]

From v12 lengths and counts are compact: an unsigned varint of one more, 0 for null. The rules are the table codec's, which is the
oracle in the tests: a count is compared with the bytes left divided by the smallest element before it is believed; unknown tags
are skipped; a known tag fills its size exactly; of a repeated tag the last counts; what follows the response is ignored.

Every turn of every loop consumes input, and the reader is sticky, so one check behind a group of reads is enough.
"""

from fastfetch.kernels.wire cimport *


cdef enum:
    FLEXIBLE_FROM = 12
    SNAPSHOT_TAG = 2
    # Smallest encodings of one element, flexible versions: 4 + 1 + 4 + 1 + 1.
    ENDPOINT_MIN = 11


cdef inline void begin(ff_fetch_walk *w, int field) noexcept nogil:
    w.field = field
    w.field_at = <size_t>(w.r.at - w.data)


cdef inline int64_t take_count(ff_reader *r, bint flexible, size_t smallest) noexcept nogil:
    """A count (of bytes, with `smallest` 1) that is proved to fit into the bytes left; -1 is null. Else the reader turns bad."""
    cdef int64_t n
    if flexible:
        n = <int64_t>ff_uvarint32(r) - 1
    else:
        n = ff_int32(r)
    if r.bad:
        return 0
    if n < -1 or n > 0 and <uint64_t>n > ff_left(r) // smallest:
        ff_fail(r)
        return 0
    return n


cdef inline int64_t take_some(ff_reader *r, bint flexible, size_t smallest) noexcept nogil:
    """A count that may not be null."""
    cdef int64_t n = take_count(r, flexible, smallest)
    if n < 0:
        ff_fail(r)
        return 0
    return n


cdef inline uint32_t take_tag_count(ff_reader *r) noexcept nogil:
    """Each tagged field has at least a byte of tag and one of size."""
    cdef uint32_t count = ff_uvarint32(r)
    if count > ff_left(r) // 2:
        ff_fail(r)
        return 0
    return count


cdef inline ff_reader take_tag(ff_reader *r, uint32_t *tag) noexcept nogil:
    """A reader of the next tagged field's bytes."""
    cdef uint32_t size
    cdef const uint8_t *p
    tag[0] = ff_uvarint32(r)
    size = ff_uvarint32(r)
    p = ff_take(r, size)
    return ff_reader_of(p, 0 if p == NULL else size)


cdef void skip_tags(ff_reader *r) noexcept nogil:
    cdef uint32_t tag
    cdef uint32_t count = take_tag_count(r)
    while count > 0 and not r.bad:
        take_tag(r, &tag)
        count -= 1


cdef inline bint used_up(ff_reader *inner) noexcept nogil:
    """A struct inside a tag: its own tagged fields, and then nothing."""
    skip_tags(inner)
    return not inner.bad and inner.at == inner.end


cdef void partition_tags(ff_fetch_walk *w, ff_fetch_partition *p) noexcept nogil:
    cdef ff_reader inner
    cdef uint32_t tag
    cdef uint32_t count = take_tag_count(&w.r)
    while count > 0 and not w.r.bad:
        count -= 1
        inner = take_tag(&w.r, &tag)
        if w.r.bad or tag > SNAPSHOT_TAG:
            continue
        if tag == 0:
            p.diverging_epoch = ff_int32(&inner)
            p.diverging_end_offset = ff_int64(&inner)
        elif tag == 1:
            p.leader_id = ff_int32(&inner)
            p.leader_epoch = ff_int32(&inner)
        else:                            # a snapshot id is for followers: an end offset and an epoch
            ff_int64(&inner)
            ff_int32(&inner)
        if not used_up(&inner):
            ff_fail(&w.r)


cdef inline void take_endpoint(ff_reader *r, ff_fetch_endpoint *e) noexcept nogil:
    e.node_id = ff_int32(r)
    e.host_size = take_some(r, True, 1)
    e.host = ff_take(r, <size_t>e.host_size)
    e.port = ff_int32(r)
    e.rack_size = take_count(r, True, 1)
    e.rack = ff_take(r, <size_t>e.rack_size) if e.rack_size > 0 else NULL
    skip_tags(r)


cdef void response_tags(ff_fetch_walk *w) noexcept nogil:
    cdef ff_reader inner
    cdef ff_fetch_endpoint e
    cdef uint32_t tag
    cdef int64_t left
    cdef uint32_t count = take_tag_count(&w.r)
    while count > 0 and not w.r.bad:
        count -= 1
        inner = take_tag(&w.r, &tag)
        if w.r.bad or tag != 0 or w.version < 16:
            continue
        w.field = FF_FETCH_ENDPOINTS
        w.field_at = <size_t>(inner.at - w.data)
        left = take_some(&inner, True, ENDPOINT_MIN)
        w.endpoints = inner
        w.endpoints_left = left
        while left > 0 and not inner.bad:
            take_endpoint(&inner, &e)
            left -= 1
        if inner.bad or inner.at != inner.end:
            ff_fail(&w.r)


cdef int ff_fetch_open(ff_fetch_walk *w, const uint8_t *data, size_t n, int version) noexcept nogil:
    """Read the head of a response of `n` bytes, which starts with the correlation id."""
    w.r = ff_reader_of(data, n)
    w.data = data
    w.version = version
    w.flexible = version >= FLEXIBLE_FROM
    w.error_code = 0
    w.session_id = 0
    w.partitions_left = 0
    w.topic_index = -1
    w.partition_index = -1
    w.topic = NULL
    w.topic_size = 0
    w.topic_id = NULL
    w.endpoints_left = 0
    begin(w, FF_FETCH_HEADER)
    if not FF_FETCH_OLDEST <= version <= FF_FETCH_NEWEST:
        return FF_UNSUPPORTED_VERSION
    w.correlation_id = ff_int32(&w.r)
    if w.flexible:
        if not w.r.bad:
            begin(w, FF_FETCH_HEADER_TAGS)
        skip_tags(&w.r)
        if not w.r.bad:
            begin(w, FF_FETCH_HEADER)
    w.throttle_time_ms = ff_int32(&w.r)
    if version >= 7:
        w.error_code = ff_int16(&w.r)
        w.session_id = ff_int32(&w.r)
    if w.r.bad:
        return FF_BAD_RESPONSE
    begin(w, FF_FETCH_TOPICS)
    # A topic is at least its name's length or its id, a count and, flexible, a byte of tags.
    w.topics_left = take_some(&w.r, w.flexible, (18 if version >= 13 else 3) if w.flexible else 6)
    return FF_BAD_RESPONSE if w.r.bad else FF_OK


cdef int next_topic(ff_fetch_walk *w) noexcept nogil:
    cdef int64_t size
    cdef size_t smallest
    w.topics_left -= 1
    w.topic_index += 1
    w.partition_index = -1
    begin(w, FF_FETCH_TOPIC)
    if w.version >= 13:
        w.topic_id = ff_take(&w.r, 16)
    else:
        if w.flexible:
            size = take_some(&w.r, True, 1)
        else:
            size = ff_int16(&w.r)
            if size < 0:
                ff_fail(&w.r)
                size = 0
        w.topic_size = <size_t>size
        w.topic = ff_take(&w.r, <size_t>size)
    if w.r.bad:
        return FF_BAD_RESPONSE
    begin(w, FF_FETCH_PARTITIONS)
    # partition 4, error 2, two offsets 16; counts and lengths 1 each from v12 and 4 each below.
    smallest = 4 + 2 + 16 + (1 + 1 + 1 if w.flexible else 4 + 4)
    if w.version >= 5:
        smallest += 8
    if w.version >= 11:
        smallest += 4
    w.partitions_left = take_some(&w.r, w.flexible, smallest)
    return FF_BAD_RESPONSE if w.r.bad else FF_OK


cdef int take_partition(ff_fetch_walk *w, ff_fetch_partition *p) noexcept nogil:
    cdef ff_reader *r = &w.r
    cdef int64_t left, producer_id, first_offset
    w.partitions_left -= 1
    w.partition_index += 1
    begin(w, FF_FETCH_PARTITION)
    p.partition = ff_int32(r)
    p.error_code = ff_int16(r)
    p.high_watermark = ff_int64(r)
    p.last_stable_offset = ff_int64(r)
    p.log_start_offset = ff_int64(r) if w.version >= 5 else -1
    if r.bad:
        return FF_BAD_RESPONSE
    begin(w, FF_FETCH_ABORTED)
    p.aborted_count = take_count(r, w.flexible, 17 if w.flexible else 16)
    p.aborted = r[0]
    if w.flexible:
        left = p.aborted_count
        while left > 0 and not r.bad:
            ff_fetch_next_aborted(r, True, &producer_id, &first_offset)
            left -= 1
    elif p.aborted_count > 0:
        ff_take(r, <size_t>p.aborted_count * 16)
    if r.bad:
        return FF_BAD_RESPONSE
    begin(w, FF_FETCH_REPLICA)
    p.preferred_read_replica = ff_int32(r) if w.version >= 11 else -1
    if r.bad:
        return FF_BAD_RESPONSE
    begin(w, FF_FETCH_RECORDS)
    p.records_size = take_count(r, w.flexible, 1)
    p.records = ff_take(r, <size_t>p.records_size) if p.records_size >= 0 else NULL
    if r.bad:
        return FF_BAD_RESPONSE
    p.diverging_epoch = -1
    p.diverging_end_offset = -1
    p.leader_id = -1
    p.leader_epoch = -1
    if w.flexible:
        begin(w, FF_FETCH_PARTITION_TAGS)
        partition_tags(w, p)
    return FF_BAD_RESPONSE if r.bad else FF_OK


cdef int ff_fetch_next(ff_fetch_walk *w, ff_fetch_partition *p, bint *more) noexcept nogil:
    """The next partition, in wire order. With `more` false there was none left, and the whole response is proved well formed."""
    cdef int status
    more[0] = False
    while w.partitions_left == 0:
        if w.flexible and w.topic_index >= 0:
            begin(w, FF_FETCH_TOPIC_TAGS)
            skip_tags(&w.r)
            if w.r.bad:
                return FF_BAD_RESPONSE
        if w.topics_left == 0:
            if w.flexible:
                begin(w, FF_FETCH_TAGS)
                response_tags(w)
            return FF_BAD_RESPONSE if w.r.bad else FF_OK
        status = next_topic(w)
        if status != FF_OK:
            return status
    more[0] = True
    return take_partition(w, p)


cdef void ff_fetch_next_aborted(ff_reader *r, bint flexible, int64_t *producer_id, int64_t *first_offset) noexcept nogil:
    """The next of a partition's aborted transactions. From v12 each is a struct with tagged fields of its own."""
    producer_id[0] = ff_int64(r)
    first_offset[0] = ff_int64(r)
    if flexible:
        skip_tags(r)


cdef bint ff_fetch_next_endpoint(ff_fetch_walk *w, ff_fetch_endpoint *e) noexcept nogil:
    """The next node endpoint, once ff_fetch_next has reached the end; false: no more."""
    if w.endpoints_left == 0:
        return False
    w.endpoints_left -= 1
    take_endpoint(&w.endpoints, e)
    return True


cdef const char *ff_fetch_field_text(int field) noexcept nogil:
    if field == FF_FETCH_HEADER:
        return "header"
    if field == FF_FETCH_HEADER_TAGS:
        return "header's tagged fields"
    if field == FF_FETCH_TOPICS:
        return "responses"
    if field == FF_FETCH_TOPIC:
        return "topic"
    if field == FF_FETCH_PARTITIONS:
        return "partitions"
    if field == FF_FETCH_PARTITION:
        return "offsets"
    if field == FF_FETCH_ABORTED:
        return "aborted_transactions"
    if field == FF_FETCH_REPLICA:
        return "preferred_read_replica"
    if field == FF_FETCH_RECORDS:
        return "records"
    if field == FF_FETCH_ENDPOINTS:
        return "node_endpoints"
    return "tagged fields"
