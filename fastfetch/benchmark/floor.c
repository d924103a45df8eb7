/* The floor of the decode benchmarks: what any correct decoder must do, and nothing else.
 *
 * One pass over the `records` bytes of a fetch response: prove each batch header, CRC-32C, inflate with the C library, walk
 * the records into columns. No GIL, no allocation, no blocks, no policy: buffers are the caller's and stay warm between rounds.
 *
 *   crc      one stream of the SSE4.2 (or Arm) CRC instruction, 8 bytes a step; a slice-by-8 table elsewhere
 *   inflate  liblz4, libzstd and zlib as found on the system, one context for the life of the process
 *   walk     every varint and length against the end of its record, columns of 36 bytes a record
 *
 * Built by floor.py with the C compiler at bench time. The libraries' headers need not be installed: the few functions used have
 * had the same signature for a decade and are declared here.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

#define EXPORT __attribute__((visibility("default")))

enum { STAGE_CRC = 1, STAGE_INFLATE = 2, STAGE_WALK = 4 };
enum { BAD_FRAME = -1, BAD_CRC = -2, BAD_CODEC = -3, BAD_INFLATE = -4, BAD_RECORD = -5, BAD_CAPACITY = -6 };

typedef struct {
    int64_t *offsets, *timestamps;
    int32_t *key_starts, *key_lengths, *value_starts, *value_lengths, *header_counts;
} floor_columns;

/* ---- the C libraries ------------------------------------------------------------------------------------------------- */

static int (*lz4_block)(const char *, char *, int, int);
static size_t (*zstd_one)(void *, void *, size_t, const void *, size_t);
static unsigned (*zstd_is_error)(size_t);
static void *zstd_context;

typedef struct { /* z_stream of zlib.h: its layout is fixed by zlib's ABI, which inflateInit2_ checks by size */
    const uint8_t *next_in;
    unsigned avail_in;
    unsigned long total_in;
    uint8_t *next_out;
    unsigned avail_out;
    unsigned long total_out;
    const char *message;
    void *state, *alloc, *release, *opaque;
    int data_type;
    unsigned long adler, reserved;
} zlib_stream;
static int (*zlib_inflate)(zlib_stream *, int), (*zlib_reset)(zlib_stream *);
static zlib_stream gzip_stream;

/* Bit 0: lz4, bit 1: zstd, bit 2: zlib. A library that is missing leaves its codec without a floor. */
EXPORT int floor_open(const char *lz4, const char *zstd, const char *zlib) {
    int found = 0;
    void *library = dlopen(lz4, RTLD_NOW | RTLD_LOCAL);
    if (library && (*(void **)&lz4_block = dlsym(library, "LZ4_decompress_safe"))) found |= 1;
    library = dlopen(zstd, RTLD_NOW | RTLD_LOCAL);
    if (library) {
        void *(*create)(void);
        *(void **)&create = dlsym(library, "ZSTD_createDCtx");
        *(void **)&zstd_one = dlsym(library, "ZSTD_decompressDCtx");
        *(void **)&zstd_is_error = dlsym(library, "ZSTD_isError");
        if (create && zstd_one && zstd_is_error && (zstd_context = create())) found |= 2;
    }
    library = dlopen(zlib, RTLD_NOW | RTLD_LOCAL);
    if (library) {
        int (*init)(zlib_stream *, int, const char *, int);
        *(void **)&init = dlsym(library, "inflateInit2_");
        *(void **)&zlib_inflate = dlsym(library, "inflate");
        *(void **)&zlib_reset = dlsym(library, "inflateReset");
        if (init && zlib_inflate && zlib_reset && init(&gzip_stream, 31, "1.2.11", (int)sizeof gzip_stream) == 0) found |= 4;
    }
    return found;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------------- */

static inline uint32_t load32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return __builtin_bswap32(v);
}

static inline uint64_t load64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return __builtin_bswap64(v);
}

static inline uint32_t load32_little(const uint8_t *p) {
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* ---- CRC-32C ----------------------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c(const uint8_t *p, size_t n) {
    uint64_t crc = 0xffffffffu;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        crc = _mm_crc32_u64(crc, v);
    }
    for (; n; p++, n--) crc = _mm_crc32_u8((uint32_t)crc, *p);
    return (uint32_t)crc ^ 0xffffffffu;
}
EXPORT const char *floor_crc_name(void) { return "SSE4.2, one stream"; }
#elif defined(__ARM_FEATURE_CRC32)
static uint32_t crc32c(const uint8_t *p, size_t n) {
    uint32_t crc = 0xffffffffu;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        crc = __crc32cd(crc, v);
    }
    for (; n; p++, n--) crc = __crc32cb(crc, *p);
    return crc ^ 0xffffffffu;
}
EXPORT const char *floor_crc_name(void) { return "Arm CRC, one stream"; }
#else
static uint32_t crc_table[8][256];
static uint32_t crc32c(const uint8_t *p, size_t n) {
    uint32_t crc = 0xffffffffu;
    if (!crc_table[0][1])
        for (int i = 0; i < 256; i++) {
            uint32_t v = (uint32_t)i;
            for (int bit = 0; bit < 8; bit++) v = v >> 1 ^ (0x82f63b78u & -(v & 1));
            crc_table[0][i] = v;
        }
    if (!crc_table[7][1])
        for (int t = 1; t < 8; t++)
            for (int i = 0; i < 256; i++) crc_table[t][i] = crc_table[0][crc_table[t - 1][i] & 255] ^ crc_table[t - 1][i] >> 8;
    for (; n >= 8; p += 8, n -= 8) {
        uint32_t low = crc ^ load32_little(p), high = load32_little(p + 4);
        crc = crc_table[7][low & 255] ^ crc_table[6][low >> 8 & 255] ^ crc_table[5][low >> 16 & 255] ^ crc_table[4][low >> 24]
            ^ crc_table[3][high & 255] ^ crc_table[2][high >> 8 & 255] ^ crc_table[1][high >> 16 & 255] ^ crc_table[0][high >> 24];
    }
    for (; n; p++, n--) crc = crc_table[0][(crc ^ *p) & 255] ^ crc >> 8;
    return crc ^ 0xffffffffu;
}
EXPORT const char *floor_crc_name(void) { return "table, 8 bytes a step"; }
#endif

/* ---- inflate ----------------------------------------------------------------------------------------------------------- */

/* One LZ4 frame of independent blocks without checksums or size, as Kafka's Java client writes it. Calling the library block by
   block is a little faster than its frame functions, so that is the floor. */
static int64_t inflate_lz4(const uint8_t *src, size_t n, uint8_t *dst, size_t cap) {
    if (n < 11 || load32_little(src) != 0x184d2204u || src[4] != 0x60) return BAD_INFLATE;
    const uint8_t *at = src + 7, *end = src + n;
    size_t out = 0;
    for (;;) {
        if (end - at < 4) return BAD_INFLATE;
        uint32_t header = load32_little(at), size = header & 0x7fffffffu;
        at += 4;
        if (!header) return at == end ? (int64_t)out : BAD_INFLATE;
        if (size > (size_t)(end - at)) return BAD_INFLATE;
        if (header >> 31) {
            if (size > cap - out) return BAD_CAPACITY;
            memcpy(dst + out, at, size);
            out += size;
        } else {
            size_t room = cap - out;
            int got = lz4_block((const char *)at, (char *)dst + out, (int)size, room > 65536 ? 65536 : (int)room);
            if (got < 0) return BAD_INFLATE;
            out += (size_t)got;
        }
        at += size;
    }
}

static int64_t inflate(int codec, const uint8_t *src, size_t n, uint8_t *dst, size_t cap) {
    if (codec == 3 && lz4_block) return inflate_lz4(src, n, dst, cap);
    if (codec == 4 && zstd_context) {
        size_t got = zstd_one(zstd_context, dst, cap, src, n);
        return zstd_is_error(got) ? BAD_INFLATE : (int64_t)got;
    }
    if (codec == 1 && zlib_inflate) {
        zlib_reset(&gzip_stream);
        gzip_stream.next_in = src;
        gzip_stream.avail_in = (unsigned)n;
        gzip_stream.next_out = dst;
        gzip_stream.avail_out = cap > 0x7fffffff ? 0x7fffffff : (unsigned)cap;
        return zlib_inflate(&gzip_stream, 4) == 1 ? (int64_t)gzip_stream.total_out : BAD_INFLATE;
    }
    return BAD_CODEC;
}

/* ---- walk -------------------------------------------------------------------------------------------------------------- */

/* The longer forms, out of line; NULL: cut off, or longer or larger than `bits` allow. */
static __attribute__((noinline)) const uint8_t *varint_slow(const uint8_t *at, const uint8_t *end, int bits, int64_t *value) {
    uint64_t v = 0;
    for (int shift = 0; shift < bits && at < end; shift += 7) {
        uint8_t b = *at++;
        if (bits - shift < 7 && b >> (bits - shift)) return NULL;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80) {
            *value = (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
            return at;
        }
    }
    return NULL;
}

/* One and two bytes in line: nearly every varint of a record. */
static inline __attribute__((always_inline)) const uint8_t *varint(const uint8_t *at, const uint8_t *end, int bits, int64_t *value) {
    if (__builtin_expect(end - at >= 2, 1)) {
        uint32_t v = at[0];
        if (v < 0x80) {
            *value = (int32_t)(v >> 1) ^ -(int32_t)(v & 1);
            return at + 1;
        }
        uint32_t second = at[1];
        if (second < 0x80) {
            v = (v & 0x7f) | second << 7;
            *value = (int32_t)(v >> 1) ^ -(int32_t)(v & 1);
            return at + 2;
        }
    }
    return varint_slow(at, end, bits, value);
}

static __attribute__((noinline)) int64_t walk(const uint8_t *at, const uint8_t *end, const uint8_t *origin, const uint8_t *batch,
                                              int64_t count, const floor_columns *out, int64_t row) {
    const floor_columns to = *out; /* a copy: stores to the columns cannot change it */
    const int64_t base_offset = (int64_t)load64(batch), last = row + count;
    const int append_time = batch[22] & 8;
    const uint64_t base_time = load64(batch + (append_time ? 35 : 27)), keep = append_time ? 0 : ~(uint64_t)0;
    int64_t length, delta, n;
    for (; row < last; row++) {
        if (!(at = varint(at, end, 32, &length)) || length < 1 || length > end - at) return BAD_RECORD;
        const uint8_t *stop = at + length;
        at++; /* attributes: unused */
        if (!(at = varint(at, stop, 64, &delta))) return BAD_RECORD;
        to.timestamps[row] = (int64_t)(base_time + ((uint64_t)delta & keep));
        if (!(at = varint(at, stop, 32, &delta)) || delta < 0) return BAD_RECORD;
        to.offsets[row] = base_offset + delta;
        if (!(at = varint(at, stop, 32, &n)) || n > stop - at) return BAD_RECORD;
        to.key_starts[row] = (int32_t)(at - origin);
        to.key_lengths[row] = n < 0 ? -1 : (int32_t)n;
        at += n < 0 ? 0 : n;
        if (!(at = varint(at, stop, 32, &n)) || n > stop - at) return BAD_RECORD;
        to.value_starts[row] = (int32_t)(at - origin);
        to.value_lengths[row] = n < 0 ? -1 : (int32_t)n;
        at += n < 0 ? 0 : n;
        if (at < stop && *at == 0) {
            to.header_counts[row] = 0;
            at++;
        } else {
            if (!(at = varint(at, stop, 32, &n)) || n < 0 || n > stop - at) return BAD_RECORD;
            to.header_counts[row] = (int32_t)n;
            for (int64_t header = 0; header < n; header++) {
                if (!(at = varint(at, stop, 32, &length)) || length < 0 || length > stop - at) return BAD_RECORD;
                at += length;
                if (!(at = varint(at, stop, 32, &length)) || length > stop - at) return BAD_RECORD;
                at += length < 0 ? 0 : length;
            }
        }
        if (at != stop) return BAD_RECORD;
        /* Equal, but not the same to the processor: `stop` was known as soon as the length was read, `at` only now. */
        __asm__("" : "+r"(stop));
        at = stop;
    }
    return at == end ? row : BAD_RECORD;
}

/* ---- the whole --------------------------------------------------------------------------------------------------------- */

/* Records decoded, or one of the BAD_ codes. `stages` leaves work out, so that each part can be timed: without STAGE_WALK the
   counts of the headers are added up, without STAGE_INFLATE compressed batches are not walked either. */
EXPORT int64_t floor_decode(const uint8_t *data, size_t size, uint8_t *arena, size_t arena_size, const floor_columns *out,
                            int64_t capacity, int stages) {
    const uint8_t *at = data, *end = data + size;
    int64_t row = 0;
    size_t used = 0;
    while (end - at >= 61) {
        int64_t length = (int32_t)load32(at + 8);
        if (length < 49 || at[16] != 2) return BAD_FRAME;
        if (length > end - at - 12) break;
        const uint8_t *next = at + 12 + length, *payload = at + 61;
        int64_t count = (int32_t)load32(at + 57);
        int codec = at[22] & 7;
        if ((stages & STAGE_CRC) && crc32c(at + 21, (size_t)(next - at) - 21) != load32(at + 17)) return BAD_CRC;
        if (count < 0 || count > capacity - row) return BAD_CAPACITY;
        const uint8_t *origin = data, *stop = next;
        if (codec && (stages & STAGE_INFLATE)) {
            int64_t got = inflate(codec, payload, (size_t)(next - payload), arena + used, arena_size - used);
            if (got < 0) return got;
            payload = arena + used;
            stop = payload + got;
            used += (size_t)got;
            origin = arena;
        }
        if (count > (stop - payload) / 7 && (!codec || (stages & STAGE_INFLATE))) return BAD_RECORD;
        if ((stages & STAGE_WALK) && (!codec || (stages & STAGE_INFLATE))) {
            row = walk(payload, stop, origin, at, count, out, row);
            if (row < 0) return row;
        } else {
            row += count;
        }
        at = next;
    }
    return row;
}
