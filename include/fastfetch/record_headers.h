/* record_headers.h: the headers of one record, walked where they lie. Plain C99, allocates nothing.
 *
 *     ff_headers headers = ff_headers_of(&block->columns, row, block->data, block->data_bytes);
 *     ff_header header;
 *     while (ff_next_header(&headers, &header)) use(header.key, header.key_bytes, header.value, header.value_bytes);
 *
 * The decoder has proved them, so in a decoded block nothing here fails; the reader is bounded all the same. */
#ifndef FASTFETCH_RECORD_HEADERS_H
#define FASTFETCH_RECORD_HEADERS_H

#include "fastfetch/columns.h"
#include "fastfetch/wire.h"

typedef struct {
    const uint8_t *key;   /* UTF-8, if the producer keeps to the rules; not proved            */
    const uint8_t *value; /* NULL: null                                                       */
    int32_t key_bytes;
    int32_t value_bytes; /* -1: null                                                          */
} ff_header;

typedef struct {
    ff_reader r; /* at the next header; behind the last one in the end; `bad` if one did not fit */
    int32_t left;
} ff_headers;

/* Headers that begin at `at`, with their number. */
static inline ff_headers ff_headers_at(const uint8_t *at, size_t n) {
    ff_headers headers;
    headers.r = ff_reader_of(at, n);
    headers.left = ff_varint32(&headers.r);
    return headers;
}

/* The headers of a row. Old formats have none, and nothing stands behind their values: the count decides, not the bytes. */
static inline ff_headers ff_headers_of(const ff_columns *columns, size_t row, const uint8_t *data, size_t data_bytes) {
    int32_t length = columns->value_lengths[row];
    size_t start = (size_t)columns->value_starts[row] + (length > 0 ? (size_t)length : 0);
    ff_headers none = {{data + start, data + start, 0}, 0};
    return columns->header_counts[row] ? ff_headers_at(data + start, data_bytes - start) : none;
}

/* 1: there was one. 0: no more, or (r.bad) it did not fit; the header is then empty, and null. */
static inline int ff_next_header(ff_headers *headers, ff_header *header) {
    ff_reader *r = &headers->r;
    header->key = header->value = NULL;
    header->key_bytes = 0;
    header->value_bytes = -1;
    if (headers->left <= 0 || r->bad) return 0;
    headers->left--;
    int32_t key_bytes = ff_varint32(r);
    const uint8_t *key = ff_take(r, (size_t)key_bytes); /* a negative length is more than there is */
    int32_t value_bytes = ff_varint32(r);
    const uint8_t *value = value_bytes >= 0 ? ff_take(r, (size_t)value_bytes) : NULL;
    if (r->bad) return 0;
    header->key = key;
    header->key_bytes = key_bytes;
    header->value = value;
    header->value_bytes = value_bytes >= 0 ? value_bytes : -1;
    return 1;
}

#endif
