/* CRC-32C over every length 0..300 at every alignment 0..15, on every path that this machine has: prints `path alignment length crc`
 * for an oracle to compare. Longer lengths go through the folding and the joining of streams. Blocks are of exactly their size. */
#include "fastfetch/crc32c.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"

static void lengths(int path, ff_crc_fn crc, const uint8_t *data) {
    static const size_t longer[] = {511, 512, 513, 767, 768, 769, 1023, 1024, 4095, 4096, 12287, 12288, 12289, 13056, 40000, 65536};
    for (size_t alignment = 0; alignment < 16; alignment++) {
        for (size_t i = 0; i <= 300 + sizeof longer / sizeof *longer; i++) {
            size_t n = i <= 300 ? i : longer[i - 301];
            /* malloc gives 16-byte alignment, so the data starts at `alignment` and ends with the block. */
            uint8_t *block = malloc(alignment + n + 1);
            if (!block) abort();
            uint8_t *exact = realloc(block, alignment + n ? alignment + n : 1);
            if (!exact) abort();
            if (n) memcpy(exact + alignment, data + alignment, n);
            uint32_t whole = crc(0, exact + alignment, n);
            printf("%s %zu %zu %08" PRIx32 "\n", ff_crc_path_name(path), alignment, n, whole);
            /* Going on from a part gives the whole. */
            size_t cut = n / 3 + (n > 100 ? alignment : 0);
            if (cut > n) cut = n;
            CHECK(crc(crc(0, exact + alignment, cut), exact + alignment + cut, n - cut) == whole);
            free(exact);
        }
    }
}

int main(void) {
    static uint8_t data[70000];
    uint32_t seed = 12345;
    for (size_t i = 0; i < sizeof data; i++) {
        seed = seed * 1664525u + 1013904223u;
        data[i] = (uint8_t)(seed >> 24);
    }
    for (int path = FF_CRC_PATH_TABLE; path <= FF_CRC_PATH_ARM; path++) {
        if (!ff_crc_path_supported(path)) continue;
        ff_crc_fn crc = ff_crc_function(path);
        CHECK(crc(0, (const uint8_t *)"123456789", 9) == 0xe3069283u);
        CHECK(crc(0, NULL, 0) == 0);
        lengths(path, crc, data);
    }
    CHECK(ff_crc_path_supported(ff_crc_path()));
    CHECK(ff_crc32c(0, (const uint8_t *)"123456789", 9) == 0xe3069283u);
    CHECK(ff_crc32(0, (const uint8_t *)"123456789", 9) == 0xcbf43926u);
    uint32_t crc = 0;
    for (size_t n = 0; n <= 300; n++) {
        printf("zlib 0 %zu %08" PRIx32 "\n", n, ff_crc32(0, data, n));
        if (n) CHECK((crc = ff_crc32(crc, data + n - 1, 1)) == ff_crc32(0, data, n));
    }
    return report();
}
