"""The C headers of include/fastfetch as Cython sees them. Declarations only; the headers hold the documentation."""

from libc.stddef cimport size_t
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from "fastfetch/status.h" nogil:
    ctypedef enum ff_status:
        FF_OK
        FF_PARTIAL
        FF_BAD_LENGTH
        FF_BAD_MAGIC
        FF_UNSUPPORTED_MAGIC
        FF_BAD_OFFSET
        FF_BAD_CRC
        FF_BAD_CODEC
        FF_MISSING_CODEC
        FF_BAD_INFLATE
        FF_TOO_LARGE
        FF_BAD_COUNT
        FF_BAD_RECORD_LENGTH
        FF_BAD_RECORD
        FF_BAD_HEADERS
        FF_BAD_OFFSET_DELTA
        FF_MISSING_RECORDS
        FF_LEFT_OVER
        FF_BAD_MARKER
        FF_BAD_MESSAGE
        FF_BAD_WRAPPER
        FF_BAD_RESPONSE
        FF_OUTPUT_FULL
        FF_NO_MEMORY
        FF_RAISED
        FF_UNSUPPORTED_VERSION

    const char *ff_status_text(int status)


cdef extern from "fastfetch/wire.h" nogil:
    ctypedef struct ff_reader:
        const uint8_t *at
        const uint8_t *end
        int bad

    uint16_t ff_load16(const uint8_t *p)
    uint32_t ff_load32(const uint8_t *p)
    uint64_t ff_load64(const uint8_t *p)
    uint32_t ff_load32_le(const uint8_t *p)
    uint64_t ff_load64_le(const uint8_t *p)
    ff_reader ff_reader_of(const uint8_t *data, size_t n)
    size_t ff_left(const ff_reader *r)
    void ff_fail(ff_reader *r)
    const uint8_t *ff_take(ff_reader *r, size_t n)
    void ff_resume_at_end(ff_reader *r)
    int8_t ff_int8(ff_reader *r)
    int16_t ff_int16(ff_reader *r)
    int32_t ff_int32(ff_reader *r)
    int64_t ff_int64(ff_reader *r)
    uint64_t ff_uvarint(ff_reader *r, int bits)
    uint32_t ff_uvarint32(ff_reader *r)
    int32_t ff_varint32(ff_reader *r)
    int64_t ff_varint64(ff_reader *r)


cdef extern from "fastfetch/layout.h" nogil:
    enum:
        FF_ENTRY_OFFSET
        FF_ENTRY_LENGTH
        FF_ENTRY_OVERHEAD
        FF_ENTRY_MAGIC
        FF_ENTRY_MIN_LENGTH
        FF_BATCH_LEADER_EPOCH
        FF_BATCH_CRC
        FF_BATCH_ATTRIBUTES
        FF_BATCH_LAST_OFFSET_DELTA
        FF_BATCH_BASE_TIMESTAMP
        FF_BATCH_MAX_TIMESTAMP
        FF_BATCH_PRODUCER_ID
        FF_BATCH_PRODUCER_EPOCH
        FF_BATCH_BASE_SEQUENCE
        FF_BATCH_RECORDS_COUNT
        FF_BATCH_HEADER
        FF_BATCH_MIN_LENGTH
        FF_RECORD_MIN
        FF_HEADER_MIN
        FF_MESSAGE_CRC
        FF_MESSAGE_ATTRIBUTES
        FF_MESSAGE_V0_KEY
        FF_MESSAGE_V1_TIMESTAMP
        FF_MESSAGE_V1_KEY
        FF_MESSAGE_V0_MIN_LENGTH
        FF_MESSAGE_V1_MIN_LENGTH
        FF_CODEC_MASK
        FF_ATTRIBUTE_LOG_APPEND_TIME
        FF_ATTRIBUTE_TRANSACTIONAL
        FF_ATTRIBUTE_CONTROL
        FF_ATTRIBUTE_DELETE_HORIZON
        FF_MARKER_ABORT
        FF_MARKER_COMMIT
        FF_TIMESTAMP_NONE
        FF_TIMESTAMP_CREATE
        FF_TIMESTAMP_LOG_APPEND
        FF_CODEC_NONE
        FF_CODEC_GZIP
        FF_CODEC_SNAPPY
        FF_CODEC_LZ4
        FF_CODEC_ZSTD


cdef extern from "fastfetch/crc32c.h" nogil:
    uint32_t ff_crc32c(uint32_t crc, const uint8_t *data, size_t n)
    uint32_t ff_crc32(uint32_t crc, const uint8_t *data, size_t n)
    int ff_crc_path()
    int ff_crc_path_supported(int path)
    const char *ff_crc_path_name(int path)


cdef extern from "fastfetch/codec.h" nogil:
    ctypedef int64_t (*ff_inflate_fn)(void *context, const uint8_t *src, size_t n, uint8_t *dst, size_t cap) noexcept nogil
    ctypedef int64_t (*ff_lz4_block_fn)(
        void *context, const uint8_t *src, size_t n, uint8_t *dst, size_t cap, size_t history) noexcept nogil

    ctypedef struct ff_codecs:
        ff_inflate_fn gzip
        ff_inflate_fn zstd
        ff_lz4_block_fn lz4_block
        void *gzip_state
        void *zstd_state
        void *lz4_state
        void *owner
        int64_t unused
        int lz4_content_checksum


cdef extern from "fastfetch/columns.h" nogil:
    ctypedef struct ff_columns:
        int64_t *offsets
        int64_t *timestamps
        int32_t *key_starts
        int32_t *key_lengths
        int32_t *value_starts
        int32_t *value_lengths
        int32_t *header_counts
        int32_t *leader_epochs
        int8_t *timestamp_types

    size_t ff_slab_bytes(size_t rows)
    ff_columns ff_columns_of(void *slab, size_t rows)
    void ff_columns_copy(ff_columns *to, const ff_columns *c, size_t start, size_t n)


cdef extern from "fastfetch/record_headers.h" nogil:
    ctypedef struct ff_header:
        const uint8_t *key
        const uint8_t *value
        int32_t key_bytes
        int32_t value_bytes

    ctypedef struct ff_headers:
        ff_reader r
        int32_t left

    ff_headers ff_headers_at(const uint8_t *at, size_t n)
    ff_headers ff_headers_of(const ff_columns *columns, size_t row, const uint8_t *data, size_t data_bytes)
    int ff_next_header(ff_headers *headers, ff_header *header)
