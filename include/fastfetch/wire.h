/* wire.h: the bounded reader, the only place that touches a peer's bytes.
 *
 * A read past the end sets `bad`, moves to the end and yields zero, so a caller checks once per row and cannot over-read by
 * forgetting. Bounds are compared by subtraction (both sides are known to be in range); a sum could wrap. Plain C99. */
#ifndef FASTFETCH_WIRE_H
#define FASTFETCH_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Big-endian loads from bytes already proved present. */
static inline uint16_t ff_load16(const uint8_t *p) { return (uint16_t)((uint16_t)p[0] << 8 | p[1]); }
static inline uint32_t ff_load32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | (uint32_t)p[3];
}
static inline uint64_t ff_load64(const uint8_t *p) { return (uint64_t)ff_load32(p) << 32 | ff_load32(p + 4); }
/* Little-endian loads: LZ4, Zstandard and gzip frames. */
static inline uint32_t ff_load32_le(const uint8_t *p) {
    return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | (uint32_t)p[0];
}
static inline uint64_t ff_load64_le(const uint8_t *p) { return (uint64_t)ff_load32_le(p + 4) << 32 | ff_load32_le(p); }

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
    int bad; /* sticky: set by the first read that did not fit */
} ff_reader;

static inline ff_reader ff_reader_of(const uint8_t *data, size_t n) {
    ff_reader r = {data, data, 0};
    if (n) r.end += n; /* data may be NULL when n is 0 */
    return r;
}

static inline size_t ff_left(const ff_reader *r) { return (size_t)(r->end - r->at); }

static inline void ff_fail(ff_reader *r) {
    r->bad = 1;
    r->at = r->end;
}

/* The next n bytes, or NULL. With n = 0 the result is a place, not bytes. */
static inline const uint8_t *ff_take(ff_reader *r, size_t n) {
    const uint8_t *p = r->at;
    if (n > ff_left(r)) {
        ff_fail(r);
        return NULL;
    }
    r->at += n;
    return p;
}

/* Go to the end, which has been reached: at == end. The same place, but not the same to the processor: the end of a record was known as
 * soon as its length was read, `at` only after all its fields. Records then overlap in the pipeline instead of waiting in a chain. */
static inline void ff_resume_at_end(ff_reader *r) {
    const uint8_t *end = r->end;
#if defined(__GNUC__) || defined(__clang__)
    __asm__("" : "+r"(end));
#endif
    r->at = end;
}

static inline int8_t ff_int8(ff_reader *r) {
    const uint8_t *p = ff_take(r, 1);
    return p ? (int8_t)*p : 0;
}
static inline int16_t ff_int16(ff_reader *r) {
    const uint8_t *p = ff_take(r, 2);
    return p ? (int16_t)ff_load16(p) : 0;
}
static inline int32_t ff_int32(ff_reader *r) {
    const uint8_t *p = ff_take(r, 4);
    return p ? (int32_t)ff_load32(p) : 0;
}
static inline int64_t ff_int64(ff_reader *r) {
    const uint8_t *p = ff_take(r, 8);
    return p ? (int64_t)ff_load64(p) : 0;
}

/* Unsigned base-128 varint of `bits` (32 or 64) bits: low group first, the high bit says that more follows. The last byte may
 * not carry bits beyond the type; over-long zero padding within the longest form is accepted, as Kafka does. */
static inline uint64_t ff_uvarint_slow(ff_reader *r, int bits) {
    uint64_t v = 0;
    for (int shift = 0; shift < bits && r->at < r->end; shift += 7) {
        uint8_t b = *r->at++;
        if (bits - shift < 7 && b >> (bits - shift)) break;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80) return v;
    }
    ff_fail(r);
    return 0;
}

/* One- and two-byte forms are nearly all of real data; the rest takes the loop. */
static inline uint64_t ff_uvarint(ff_reader *r, int bits) {
    const uint8_t *p = r->at;
    if (ff_left(r) >= 2) {
        if (p[0] < 0x80) {
            r->at = p + 1;
            return p[0];
        }
        if (p[1] < 0x80) {
            r->at = p + 2;
            return (uint64_t)(p[0] & 0x7f) | (uint64_t)p[1] << 7;
        }
    }
    return ff_uvarint_slow(r, bits);
}

static inline uint32_t ff_uvarint32(ff_reader *r) { return (uint32_t)ff_uvarint(r, 32); }

/* Zigzag varints, as inside records (never in the protocol's own structures). */
static inline int64_t ff_unzigzag(uint64_t v) { return (int64_t)(v >> 1) ^ -(int64_t)(v & 1); }
static inline int32_t ff_varint32(ff_reader *r) { return (int32_t)ff_unzigzag(ff_uvarint(r, 32)); }
static inline int64_t ff_varint64(ff_reader *r) { return ff_unzigzag(ff_uvarint(r, 64)); }

#endif
