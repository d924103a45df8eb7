"""Headers of the entries of a record set, without touching their payload."""

cimport cython
from cpython.memoryview cimport PyMemoryView_GET_BUFFER

from fastfetch.errors import CorruptBatchError, UnsupportedMagicError
from fastfetch.kernels.frames cimport ff_entry, ff_entry_crc, ff_next_entry
from fastfetch.kernels.wire cimport *


@cython.final
@cython.freelist(8)
cdef class BatchHeader:
    """What one entry's header says. Sizes in bytes, timestamps in ms since 1970. For magic 0 and 1 an entry is one message (or a compressed
    set of them): fields those formats lack are -1, False or None."""

    cdef readonly Py_ssize_t byte_pos, size
    cdef readonly int magic
    cdef readonly str codec
    cdef readonly int64_t base_offset, last_offset, next_offset
    cdef readonly object count
    cdef readonly uint32_t crc
    cdef readonly object crc_ok
    cdef readonly int timestamp_type
    cdef readonly int64_t base_timestamp, max_timestamp
    cdef readonly int leader_epoch
    cdef readonly int64_t producer_id
    cdef readonly int producer_epoch, base_sequence
    cdef readonly bint transactional, control
    cdef readonly object delete_horizon

    def as_dict(self) -> dict:
        """All fields by name, in the order above."""
        return {name: getattr(self, name) for name in FIELDS}

    def __repr__(self):
        return f"BatchHeader({', '.join(f'{name}={value!r}' for name, value in self.as_dict().items())})"


FIELDS = (
    "byte_pos", "size", "magic", "codec", "base_offset", "last_offset", "next_offset", "count", "crc", "crc_ok", "timestamp_type",
    "base_timestamp", "max_timestamp", "leader_epoch", "producer_id", "producer_epoch", "base_sequence", "transactional", "control",
    "delete_horizon",
)


cdef tuple _codecs = ("none", "gzip", "snappy", "lz4", "zstd", "codec 5", "codec 6", "codec 7")


def batches(data, *, bint check_crcs=True):
    """Iterate over the headers of whole entries, as BatchHeader; a partial one at the end stops the iteration.

    crc_ok says whether the CRC is right (None with check_crcs=False); with a wrong one every other field is suspect. Raises
    CorruptBatchError where an entry's own length or magic makes no sense, so that nothing says where the next one begins.
    """
    cdef ff_entry entry
    cdef BatchHeader header
    cdef size_t at = 0
    cdef int status
    cdef int attributes
    cdef bint v2
    view = memoryview(data).toreadonly()
    if view.ndim != 1 or view.format != "B" or not view.c_contiguous:
        view = view.cast("B")
    while True:
        status = ff_next_entry(
            <const uint8_t *>PyMemoryView_GET_BUFFER(view).buf, <size_t>PyMemoryView_GET_BUFFER(view).len, at, &entry)
        if status == FF_PARTIAL:
            return
        if status != FF_OK:
            text = (<bytes>ff_status_text(status)).decode()
            raise (UnsupportedMagicError if status == FF_UNSUPPORTED_MAGIC else CorruptBatchError)(
                text[0].upper() + text[1:], position=entry.offset, base_offset=entry.offset, byte_pos=at, size=entry.size or None,
                kind="length" if status == FF_BAD_LENGTH else "magic")
        v2 = entry.magic == 2
        attributes = entry.attributes
        header = BatchHeader.__new__(BatchHeader)
        header.byte_pos = at
        header.size = entry.size
        header.magic = entry.magic
        header.codec = _codecs[attributes & FF_CODEC_MASK]
        header.base_offset = entry.offset
        header.last_offset = <int64_t>(<uint64_t>entry.offset + <uint64_t>entry.last_offset_delta)     # may wrap: nothing is proved
        header.next_offset = <int64_t>(<uint64_t>header.last_offset + 1)
        header.count = entry.count if v2 else None
        header.crc = entry.crc
        header.crc_ok = ff_entry_crc(&entry) == entry.crc if check_crcs else None
        header.timestamp_type = FF_TIMESTAMP_NONE if entry.magic == 0 else 1 if attributes & FF_ATTRIBUTE_LOG_APPEND_TIME else 0
        header.base_timestamp = entry.base_timestamp
        header.max_timestamp = entry.max_timestamp
        header.leader_epoch = entry.leader_epoch
        header.producer_id = entry.producer_id
        header.producer_epoch = entry.producer_epoch
        header.base_sequence = entry.base_sequence
        header.transactional = v2 and attributes & FF_ATTRIBUTE_TRANSACTIONAL != 0
        header.control = v2 and attributes & FF_ATTRIBUTE_CONTROL != 0
        header.delete_horizon = entry.base_timestamp if v2 and attributes & FF_ATTRIBUTE_DELETE_HORIZON else None
        yield header
        at += entry.size
