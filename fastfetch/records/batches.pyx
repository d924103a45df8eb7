"""Headers of the entries of a record set, without touching their payload."""

from dataclasses import dataclass

from cpython.memoryview cimport PyMemoryView_GET_BUFFER

from fastfetch.errors import CorruptBatchError, UnsupportedMagicError
from fastfetch.kernels.frames cimport ff_entry, ff_entry_crc, ff_next_entry
from fastfetch.kernels.wire cimport *


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """What one entry's header says. Sizes in bytes, timestamps in ms since 1970. For magic 0 and 1 an entry is one message (or a compressed
    set of them): fields those formats lack are -1, False or None."""

    byte_pos: int
    size: int
    magic: int
    codec: str
    base_offset: int
    last_offset: int
    next_offset: int
    count: int | None
    crc: int
    crc_ok: bool | None
    timestamp_type: int
    base_timestamp: int
    max_timestamp: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool
    control: bool
    delete_horizon: int | None


cdef tuple _codecs = ("none", "gzip", "snappy", "lz4", "zstd", "codec 5", "codec 6", "codec 7")


def batches(data, *, bint check_crcs=True):
    """Iterate over the headers of whole entries, as BatchHeader; a partial one at the end stops the iteration.

    crc_ok says whether the CRC is right (None with check_crcs=False); with a wrong one every other field is suspect. Raises
    CorruptBatchError where an entry's own length or magic makes no sense, so that nothing says where the next one begins.
    """
    cdef ff_entry entry
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
        yield BatchHeader(
            byte_pos=at,
            size=entry.size,
            magic=entry.magic,
            codec=_codecs[attributes & FF_CODEC_MASK],
            base_offset=entry.offset,
            last_offset=<int64_t>(<uint64_t>entry.offset + <uint64_t>entry.last_offset_delta),
            next_offset=<int64_t>(<uint64_t>entry.offset + <uint64_t>entry.last_offset_delta + 1),
            count=entry.count if v2 else None,
            crc=entry.crc,
            crc_ok=ff_entry_crc(&entry) == entry.crc if check_crcs else None,
            timestamp_type=FF_TIMESTAMP_NONE if entry.magic == 0 else 1 if attributes & FF_ATTRIBUTE_LOG_APPEND_TIME else 0,
            base_timestamp=entry.base_timestamp,
            max_timestamp=entry.max_timestamp,
            leader_epoch=entry.leader_epoch,
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            base_sequence=entry.base_sequence,
            transactional=v2 and attributes & FF_ATTRIBUTE_TRANSACTIONAL != 0,
            control=v2 and attributes & FF_ATTRIBUTE_CONTROL != 0,
            delete_horizon=entry.base_timestamp if v2 and attributes & FF_ATTRIBUTE_DELETE_HORIZON else None,
        )
        at += entry.size
