/* The bounded reader: big-endian loads, varints, the sticky flag. Inputs lie in blocks of exactly their size, so that a sanitizer or
 * valgrind sees a read past the end. */
#include "fastfetch/wire.h"

#include <stdlib.h>

#include "check.h"

static uint8_t *block;

static ff_reader exact(const uint8_t *bytes, size_t n) {
    free(block);
    block = malloc(n ? n : 1);
    if (!block) abort();
    if (n) memcpy(block, bytes, n);
    return ff_reader_of(block, n);
}

typedef struct {
    size_t n;
    uint8_t bytes[12];
    int bits;
    int good;
    int64_t value;
} vector;

/* Zigzag. The last ones of each width: the longest legal form, one byte more, and bits beyond the type in the last byte. */
static const vector vectors[] = {
    {1, {0x00}, 32, 1, 0},
    {1, {0x01}, 32, 1, -1},
    {1, {0x02}, 32, 1, 1},
    {1, {0x7e}, 32, 1, 63},
    {1, {0x7f}, 32, 1, -64},
    {2, {0x80, 0x01}, 32, 1, 64},
    {2, {0x81, 0x01}, 32, 1, -65},
    {5, {0xfe, 0xff, 0xff, 0xff, 0x0f}, 32, 1, INT32_MAX},
    {5, {0xff, 0xff, 0xff, 0xff, 0x0f}, 32, 1, INT32_MIN},
    {2, {0x80, 0x00}, 32, 1, 0},
    {5, {0x80, 0x80, 0x80, 0x80, 0x00}, 32, 1, 0},
    {6, {0x80, 0x80, 0x80, 0x80, 0x80, 0x00}, 32, 0, 0},
    {5, {0xff, 0xff, 0xff, 0xff, 0x10}, 32, 0, 0},
    {5, {0xff, 0xff, 0xff, 0xff, 0x7f}, 32, 0, 0},
    {6, {0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, 32, 0, 0},
    {0, {0}, 32, 0, 0},
    {1, {0x80}, 32, 0, 0},
    {4, {0x80, 0x80, 0x80, 0x80}, 32, 0, 0},
    {1, {0x00}, 64, 1, 0},
    {1, {0x01}, 64, 1, -1},
    {6, {0xa2, 0xd9, 0x9e, 0xea, 0x82, 0x68}, 64, 1, INT64_C(1787086231121)},
    {5, {0x80, 0x80, 0x80, 0x80, 0x10}, 64, 1, INT64_C(1) << 31},
    {5, {0x81, 0x80, 0x80, 0x80, 0x10}, 64, 1, -(INT64_C(1) << 31) - 1},
    {10, {0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, 64, 1, INT64_MAX},
    {10, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, 64, 1, INT64_MIN},
    {10, {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00}, 64, 1, 0},
    {11, {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00}, 64, 0, 0},
    {10, {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02}, 64, 0, 0},
    {10, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, 64, 0, 0},
    {9, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 64, 0, 0},
};

static int64_t varint(ff_reader *r, int bits) { return bits == 32 ? ff_varint32(r) : ff_varint64(r); }

static void varints(void) {
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        const vector *v = &vectors[i];
        ff_reader r = exact(v->bytes, v->n);
        int64_t value = varint(&r, v->bits);
        CHECK(value == v->value);
        CHECK(r.bad == !v->good);
        CHECK(r.at == r.end);
        if (!v->good) continue;
        /* Bytes behind a varint are left alone ... */
        uint8_t more[13] = {0};
        memcpy(more, v->bytes, v->n);
        more[v->n] = 0xff;
        r = exact(more, v->n + 1);
        CHECK(varint(&r, v->bits) == v->value && !r.bad && ff_left(&r) == 1);
        /* ... and every cut is an error that ends at the end. */
        for (size_t n = 0; n < v->n; n++) {
            r = exact(v->bytes, n);
            CHECK(varint(&r, v->bits) == 0 && r.bad && r.at == r.end);
        }
    }
    /* Unsigned, as in protocol structures. */
    ff_reader r = exact((const uint8_t *)"\xff\xff\xff\xff\x0f", 5);
    CHECK(ff_uvarint32(&r) == UINT32_MAX && !r.bad);
    r = exact((const uint8_t *)"\xff\xff\xff\xff\x10", 5);
    CHECK(ff_uvarint32(&r) == 0 && r.bad);
}

static void varints_of_every_shape(void) {
    /* All values of up to three groups, zero-padded to each legal length: independent of how the reader is written. */
    for (uint32_t raw = 0; raw < 1u << 15; raw += raw < 1u << 9 ? 1 : 61) {
        int64_t value = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
        for (int bits = 32; bits <= 64; bits += 32) {
            int longest = bits == 32 ? 5 : 10;
            for (int n = 1; n <= longest; n++) {
                uint8_t bytes[10];
                if (n < 5 && raw >> (7 * n)) continue;
                for (int k = 0; k < n; k++) bytes[k] = (uint8_t)((k < 5 ? raw >> (7 * k) & 0x7f : 0) | (k < n - 1 ? 0x80 : 0));
                ff_reader r = exact(bytes, (size_t)n);
                CHECK(varint(&r, bits) == value && !r.bad && r.at == r.end);
            }
        }
    }
}

static void fixed_sizes(void) {
    const uint8_t bytes[] = {0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10};
    ff_reader r = exact(bytes, 8);
    CHECK(ff_int8(&r) == -2);
    CHECK(ff_int8(&r) == (int8_t)0xdc);
    CHECK(ff_int16(&r) == (int16_t)0xba98);
    CHECK(ff_int32(&r) == 0x76543210 && !r.bad && ff_left(&r) == 0);
    r = exact(bytes, 8);
    CHECK(ff_int64(&r) == (int64_t)UINT64_C(0xfedcba9876543210));
    CHECK(ff_load32_le(block) == 0x98badcfe);
    CHECK(ff_load64_le(block) == UINT64_C(0x1032547698badcfe));
    CHECK(ff_load16(block) == 0xfedc && ff_load32(block) == 0xfedcba98);
    /* Every field, with every number of bytes too few. */
    for (size_t n = 0; n < 8; n++) {
        r = exact(bytes, n);
        CHECK(ff_int64(&r) == 0 && r.bad && r.at == r.end);
        if (n < 4) {
            r = exact(bytes, n);
            CHECK(ff_int32(&r) == 0 && r.bad && r.at == r.end);
        }
        if (n < 2) {
            r = exact(bytes, n);
            CHECK(ff_int16(&r) == 0 && r.bad && r.at == r.end);
        }
    }
    r = exact(bytes, 0);
    CHECK(ff_int8(&r) == 0 && r.bad);
}

static void taking(void) {
    const uint8_t bytes[] = {1, 2, 3, 4};
    ff_reader r = exact(bytes, 4);
    const uint8_t *p = ff_take(&r, 3);
    CHECK(p == block && ff_left(&r) == 1);
    CHECK(ff_take(&r, 0) == block + 3 && !r.bad);
    CHECK(ff_take(&r, 2) == NULL && r.bad && ff_left(&r) == 0);
    /* Sticky: nothing after a failed read succeeds, not even where bytes would have been left. */
    CHECK(ff_int8(&r) == 0 && ff_varint32(&r) == 0 && ff_varint64(&r) == 0 && r.bad);
    r = exact(bytes, 4);
    CHECK(ff_take(&r, SIZE_MAX) == NULL && r.bad); /* a sum would wrap */
    r = exact(bytes, 4);
    CHECK(ff_take(&r, SIZE_MAX - 2) == NULL && r.bad);
    r = ff_reader_of(NULL, 0);
    CHECK(ff_left(&r) == 0 && ff_int8(&r) == 0 && r.bad);
}

int main(void) {
    varints();
    varints_of_every_shape();
    fixed_sizes();
    taking();
    free(block);
    return report();
}
