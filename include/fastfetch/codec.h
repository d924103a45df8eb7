/* codec.h: the inflate function pointer that codec providers fill in. Plain C99, allocates nothing. */
#ifndef FASTFETCH_CODEC_H
#define FASTFETCH_CODEC_H

#include <stddef.h>
#include <stdint.h>

/* Inflate all of src[0:n] into dst[0:cap]. Returns the size produced, or -ff_status (FF_BAD_INFLATE, FF_OUTPUT_FULL, FF_NO_MEMORY,
 * FF_RAISED). Writes nothing outside dst[0:cap]. The context is the ff_codecs that the pointer stands in; it belongs to one thread at a
 * time and is reusable after any result. */
typedef int64_t (*ff_inflate_fn)(void *context, const uint8_t *src, size_t n, uint8_t *dst, size_t cap);

/* One LZ4 block. `history` bytes before dst hold what linked blocks refer to (0 for independent blocks). */
typedef int64_t (*ff_lz4_block_fn)(void *context, const uint8_t *src, size_t n, uint8_t *dst, size_t cap, size_t history);

typedef struct {
    ff_inflate_fn gzip;         /* one or more gzip members; what follows them is left and counted in `unused`   */
    ff_inflate_fn zstd;         /* frames already proved whole, of allowed window and without dictionary          */
    ff_lz4_block_fn lz4_block;  /* NULL pointers: the codec's library is missing                                  */
    void *gzip_state;           /* the provider's own, made once and reused                                       */
    void *zstd_state;
    void *lz4_state;
    void *owner;                /* whoever the states belong to                                                   */
    int64_t unused;             /* out, added to: bytes behind the compressed data that were ignored              */
    int lz4_content_checksum;   /* compare LZ4 content checksums (Java does not)                                  */
} ff_codecs;

#endif
