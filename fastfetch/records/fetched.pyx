"""A fetch response as Python sees it: partitions with their record bytes still in the frame.

The client reads fetch responses only here. The field tables of `protocol` could, and check this reader in the tests; but they
build a dict a partition, and this is the answer that comes all the time. Records are views of the frame: a response of 50 MB
costs a few hundred bytes a partition, and lives as long as the last block that points into it.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from fastfetch.errors import ProtocolError, UnsupportedVersionError
from fastfetch.kernels.fetch cimport (
    ff_fetch_endpoint,
    ff_fetch_field_text,
    ff_fetch_next,
    ff_fetch_next_aborted,
    ff_fetch_next_endpoint,
    ff_fetch_open,
    ff_fetch_partition,
    ff_fetch_walk,
    FF_FETCH_PARTITIONS,
    FF_FETCH_TOPIC,
    FF_FETCH_TOPIC_TAGS,
    FF_FETCH_PARTITION,
    FF_FETCH_ABORTED,
    FF_FETCH_REPLICA,
    FF_FETCH_RECORDS,
    FF_FETCH_PARTITION_TAGS,
    FF_FETCH_OLDEST,
    FF_FETCH_NEWEST,
)
from fastfetch.kernels.wire cimport FF_OK, FF_UNSUPPORTED_VERSION, ff_reader

__all__ = ["FetchResponse", "FetchedPartition", "read_fetch_response"]


@cython.final
cdef class FetchedPartition:
    """What a broker answered for one partition. See the stub for the fields."""
    cdef readonly object topic
    cdef readonly object topic_id
    cdef readonly int32_t partition
    cdef readonly int16_t error_code
    cdef readonly int64_t high_watermark
    cdef readonly int64_t last_stable_offset
    cdef readonly int64_t log_start_offset
    cdef readonly object aborted
    cdef readonly int32_t preferred_read_replica
    cdef readonly object records
    cdef readonly object diverging_epoch
    cdef readonly object current_leader

    def __init__(self) -> None:
        raise TypeError("FetchedPartition is made by read_fetch_response")

    def __repr__(self) -> str:
        name = self.topic if self.topic is not None else self.topic_id.hex()
        size = "no records" if self.records is None else f"{len(self.records)} bytes"
        return f"<FetchedPartition {name}-{self.partition}, error {self.error_code}, {size}>"


@cython.final
cdef class FetchResponse:
    """A fetch response. See the stub for the fields."""
    cdef readonly int32_t correlation_id
    cdef readonly int32_t throttle_time_ms
    cdef readonly int16_t error_code
    cdef readonly int32_t session_id
    cdef readonly list partitions
    cdef readonly list node_endpoints

    def __init__(self) -> None:
        raise TypeError("FetchResponse is made by read_fetch_response")

    def __repr__(self) -> str:
        return f"<FetchResponse {self.correlation_id}, error {self.error_code}, {len(self.partitions)} partitions>"


cdef str text(const uint8_t *p, Py_ssize_t n):
    # A name that isn't UTF-8 is kept: it must not lose the response.
    return PyUnicode_DecodeUTF8(<const char *>p, n, "surrogateescape")


cdef list aborted_list(ff_fetch_partition *p, bint flexible):
    cdef list out = []
    cdef ff_reader r = p.aborted
    cdef int64_t producer_id = 0
    cdef int64_t first_offset = 0
    cdef int64_t left = p.aborted_count                  # the walk has proved that they are there
    while left > 0:
        ff_fetch_next_aborted(&r, flexible, &producer_id, &first_offset)
        out.append((producer_id, first_offset))
        left -= 1
    return out


cdef FetchedPartition partition_of(ff_fetch_walk *w, ff_fetch_partition *p, object topic, object topic_id, object view):
    cdef FetchedPartition out = FetchedPartition.__new__(FetchedPartition)
    cdef Py_ssize_t start
    out.topic = topic
    out.topic_id = topic_id
    out.partition = p.partition
    out.error_code = p.error_code
    out.high_watermark = p.high_watermark
    out.last_stable_offset = p.last_stable_offset
    out.log_start_offset = p.log_start_offset
    out.preferred_read_replica = p.preferred_read_replica
    if p.aborted_count >= 0:
        out.aborted = aborted_list(p, w.flexible)
    if p.records_size >= 0:
        start = p.records - w.data
        out.records = view[start:start + p.records_size]
    if p.diverging_epoch >= 0:
        out.diverging_epoch = (p.diverging_epoch, p.diverging_end_offset)
    if p.leader_id >= 0 and p.leader_epoch >= 0:
        out.current_leader = (p.leader_id, p.leader_epoch)
    return out


cdef object malformed(ff_fetch_walk *w, Py_ssize_t n):
    """The error for what the walk could not read."""
    cdef str where = ff_fetch_field_text(w.field).decode()
    if w.field in (FF_FETCH_TOPIC, FF_FETCH_PARTITIONS, FF_FETCH_TOPIC_TAGS):
        where = f"responses[{w.topic_index}].{where}"
    elif w.field in (
        FF_FETCH_PARTITION, FF_FETCH_ABORTED, FF_FETCH_REPLICA, FF_FETCH_RECORDS, FF_FETCH_PARTITION_TAGS,
    ):
        where = f"responses[{w.topic_index}].partitions[{w.partition_index}].{where}"
        if w.topic != NULL:
            where += f" of topic {text(w.topic, <Py_ssize_t>w.topic_size)!r}"
    return ProtocolError(
        f"Fetch v{w.version} response: {where}: missing, or a length that doesn't fit the bytes left "
        f"(at byte {w.field_at}); the frame has {n} bytes"
    )


def read_fetch_response(frame, int version):
    """Read a fetch response without copying its records.

    frame    bytes-like, C-contiguous, starting with the correlation id (what follows the size of a frame). The records of the
             result are views of it: it may not change while they live.
    version  the version of the request, 4 to 18

    Raises ProtocolError for bytes that don't follow the schema, UnsupportedVersionError for another version. Nothing is allocated
    for a count that the bytes don't bear out. Bytes after the response are ignored.
    """
    cdef object view = memoryview(frame).cast("B")
    cdef const uint8_t[::1] data = view
    cdef Py_ssize_t n = data.shape[0]
    cdef const uint8_t *base = &data[0] if n > 0 else NULL
    cdef ff_fetch_walk w
    cdef ff_fetch_partition p
    cdef ff_fetch_endpoint e
    cdef bint more = True
    cdef int64_t topic_seen = -1
    cdef object topic = None
    cdef object topic_id = None
    cdef list partitions = []
    cdef list endpoints = []
    cdef int status
    cdef FetchResponse out
    status = ff_fetch_open(&w, base, <size_t>n, version)
    if status == FF_UNSUPPORTED_VERSION:
        raise UnsupportedVersionError(
            f"Fetch (api key 1) v{version} is unknown to fastfetch, which speaks {FF_FETCH_OLDEST} to {FF_FETCH_NEWEST}")
    if status != FF_OK:
        raise malformed(&w, n)
    while True:
        if ff_fetch_next(&w, &p, &more) != FF_OK:
            raise malformed(&w, n)
        if not more:
            break
        if topic_seen != w.topic_index:                  # one str or one id a topic, not a partition
            topic_seen = w.topic_index
            if w.topic_id != NULL:
                topic_id = PyBytes_FromStringAndSize(<const char *>w.topic_id, 16)
            else:
                topic = text(w.topic, <Py_ssize_t>w.topic_size)
        partitions.append(partition_of(&w, &p, topic, topic_id, view))
    while ff_fetch_next_endpoint(&w, &e):
        endpoints.append((
            e.node_id, text(e.host, <Py_ssize_t>e.host_size), e.port,
            None if e.rack_size < 0 else text(e.rack, <Py_ssize_t>e.rack_size),
        ))
    out = FetchResponse.__new__(FetchResponse)
    out.correlation_id = w.correlation_id
    out.throttle_time_ms = w.throttle_time_ms
    out.error_code = w.error_code
    out.session_id = w.session_id
    out.partitions = partitions
    out.node_endpoints = endpoints
    return out
