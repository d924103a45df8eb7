/* columns.h: decoded records as columns. One slab holds all columns of a block; starts are relative to the block's data.
 * Plain C99, allocates nothing: the caller brings the slab. */
#ifndef FASTFETCH_COLUMNS_H
#define FASTFETCH_COLUMNS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Row i is one record. A null key or value has length -1; its start is then the place where its bytes would have been.
 * A record's headers follow its value in the data: a varint count (the same number as header_counts[i]), then the pairs. */
typedef struct {
    int64_t *offsets;
    int64_t *timestamps;      /* ms since 1970, -1 = none                                    */
    int32_t *key_starts;
    int32_t *key_lengths;
    int32_t *value_starts;
    int32_t *value_lengths;
    int32_t *header_counts;
    int32_t *leader_epochs;   /* of the batch, -1 = unknown                                  */
    int8_t *timestamp_types;  /* FF_TIMESTAMP_NONE, _CREATE, _LOG_APPEND                     */
} ff_columns;

enum { FF_ROW_BYTES = 2 * 8 + 6 * 4 + 1 };

static inline size_t ff_slab_bytes(size_t rows) { return rows * FF_ROW_BYTES; }

/* Columns of a slab of `rows` rows; the wide ones first, so that each is aligned. */
static inline ff_columns ff_columns_of(void *slab, size_t rows) {
    ff_columns c;
    uint8_t *at = (uint8_t *)slab;
    c.offsets = (int64_t *)(void *)at;
    c.timestamps = c.offsets + rows;
    c.key_starts = (int32_t *)(void *)(c.timestamps + rows);
    c.key_lengths = c.key_starts + rows;
    c.value_starts = c.key_lengths + rows;
    c.value_lengths = c.value_starts + rows;
    c.header_counts = c.value_lengths + rows;
    c.leader_epochs = c.header_counts + rows;
    c.timestamp_types = (int8_t *)(void *)(c.leader_epochs + rows);
    return c;
}

/* Copy rows [from, from + n) of one set of columns to the start of another. */
static inline void ff_columns_copy(ff_columns *to, const ff_columns *c, size_t from, size_t n) {
    if (n == 0) return;
    memcpy(to->offsets, c->offsets + from, n * 8);
    memcpy(to->timestamps, c->timestamps + from, n * 8);
    memcpy(to->key_starts, c->key_starts + from, n * 4);
    memcpy(to->key_lengths, c->key_lengths + from, n * 4);
    memcpy(to->value_starts, c->value_starts + from, n * 4);
    memcpy(to->value_lengths, c->value_lengths + from, n * 4);
    memcpy(to->header_counts, c->header_counts + from, n * 4);
    memcpy(to->leader_epochs, c->leader_epochs + from, n * 4);
    memcpy(to->timestamp_types, c->timestamp_types + from, n);
}

#endif
