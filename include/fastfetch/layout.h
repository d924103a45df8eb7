/* layout.h: Kafka's record formats as named constants. Source: Kafka's protocol guide, "Messages" and "Record Batch"; KIP-98 (v2),
 * KIP-32 (v1 timestamps), KIP-534 (delete horizon). All integers are big-endian and signed. Plain C99. */
#ifndef FASTFETCH_LAYOUT_H
#define FASTFETCH_LAYOUT_H

#include <stdint.h>

enum {
    /* every entry, whatever its format: int64 offset, int32 length (of what follows it) */
    FF_ENTRY_OFFSET = 0,
    FF_ENTRY_LENGTH = 8,
    FF_ENTRY_OVERHEAD = 12,
    FF_ENTRY_MAGIC = 16,          /* at the same place in all formats */
    FF_ENTRY_MIN_LENGTH = 14,     /* smallest legal length of any format: a v0 message with null key and value */

    /* magic 2 */
    FF_BATCH_LEADER_EPOCH = 12,
    FF_BATCH_CRC = 17,            /* CRC-32C over everything from FF_BATCH_ATTRIBUTES on */
    FF_BATCH_ATTRIBUTES = 21,
    FF_BATCH_LAST_OFFSET_DELTA = 23,
    FF_BATCH_BASE_TIMESTAMP = 27,
    FF_BATCH_MAX_TIMESTAMP = 35,
    FF_BATCH_PRODUCER_ID = 43,
    FF_BATCH_PRODUCER_EPOCH = 51,
    FF_BATCH_BASE_SEQUENCE = 53,
    FF_BATCH_RECORDS_COUNT = 57,
    FF_BATCH_HEADER = 61,         /* records, possibly compressed as one block, start here */
    FF_BATCH_MIN_LENGTH = 49,     /* 61 - 12 */
    FF_RECORD_MIN = 7,            /* length, attributes, two deltas, two null lengths, header count: one byte each */
    FF_HEADER_MIN = 2,            /* key length, value length */

    /* magic 0 and 1 */
    FF_MESSAGE_CRC = 12,          /* CRC-32 (zlib's) over everything from FF_ENTRY_MAGIC on */
    FF_MESSAGE_ATTRIBUTES = 17,
    FF_MESSAGE_V0_KEY = 18,
    FF_MESSAGE_V1_TIMESTAMP = 18,
    FF_MESSAGE_V1_KEY = 26,
    FF_MESSAGE_V0_MIN_LENGTH = 14,
    FF_MESSAGE_V1_MIN_LENGTH = 22,

    /* attributes */
    FF_CODEC_MASK = 0x07,
    FF_ATTRIBUTE_LOG_APPEND_TIME = 0x08,
    FF_ATTRIBUTE_TRANSACTIONAL = 0x10,
    FF_ATTRIBUTE_CONTROL = 0x20,
    FF_ATTRIBUTE_DELETE_HORIZON = 0x40,

    /* control record types (KIP-98); 2 and above belong to KRaft */
    FF_MARKER_ABORT = 0,
    FF_MARKER_COMMIT = 1,

    FF_TIMESTAMP_NONE = -1,
    FF_TIMESTAMP_CREATE = 0,
    FF_TIMESTAMP_LOG_APPEND = 1
};

enum { FF_CODEC_NONE = 0, FF_CODEC_GZIP = 1, FF_CODEC_SNAPPY = 2, FF_CODEC_LZ4 = 3, FF_CODEC_ZSTD = 4 };

#endif
