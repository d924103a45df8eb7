/* Every status has a text of its own, the columns of a slab lie where they should, and layout constants add up. */
#include "fastfetch/codec.h"
#include "fastfetch/columns.h"
#include "fastfetch/layout.h"
#include "fastfetch/status.h"

#include <stdlib.h>

#include "check.h"

int main(void) {
    const char *unknown = ff_status_text(-1);
    CHECK(strcmp(ff_status_text(FF_UNSUPPORTED_VERSION + 1), unknown) == 0);
    for (int a = FF_OK; a <= FF_UNSUPPORTED_VERSION; a++) {
        CHECK(ff_status_text(a)[0] != 0 && strcmp(ff_status_text(a), unknown) != 0);
        for (int b = FF_OK; b < a; b++) CHECK(strcmp(ff_status_text(a), ff_status_text(b)) != 0);
    }
    CHECK(FF_OK == 0);

    CHECK(FF_BATCH_HEADER == FF_ENTRY_OVERHEAD + FF_BATCH_MIN_LENGTH);
    CHECK(FF_MESSAGE_V0_KEY + 4 + 4 == FF_ENTRY_OVERHEAD + FF_MESSAGE_V0_MIN_LENGTH);
    CHECK(FF_MESSAGE_V1_KEY + 4 + 4 == FF_ENTRY_OVERHEAD + FF_MESSAGE_V1_MIN_LENGTH);
    CHECK(FF_MESSAGE_V0_MIN_LENGTH == FF_ENTRY_MIN_LENGTH);
    CHECK(FF_BATCH_CRC + 4 == FF_BATCH_ATTRIBUTES);

    for (size_t rows = 0; rows < 20; rows++) {
        size_t size = ff_slab_bytes(rows);
        uint8_t *slab = malloc(size ? size : 1);
        if (!slab) abort();
        ff_columns c = ff_columns_of(slab, rows);
        CHECK(((uintptr_t)c.offsets | (uintptr_t)c.timestamps) % 8 == 0);
        CHECK(((uintptr_t)c.key_starts | (uintptr_t)c.leader_epochs) % 4 == 0);
        CHECK((uint8_t *)(c.timestamp_types + rows) == slab + size);
        /* Filled one after the other, each still holds its own afterwards: no two overlap. */
        for (size_t i = 0; i < rows; i++) {
            c.offsets[i] = 1, c.timestamps[i] = 2, c.key_starts[i] = 3, c.key_lengths[i] = 4, c.value_starts[i] = 5;
            c.value_lengths[i] = 6, c.header_counts[i] = 7, c.leader_epochs[i] = 8, c.timestamp_types[i] = 9;
        }
        for (size_t i = 0; i < rows; i++) {
            CHECK(c.offsets[i] == 1 && c.timestamps[i] == 2 && c.key_starts[i] == 3 && c.key_lengths[i] == 4);
            CHECK(c.value_starts[i] == 5 && c.value_lengths[i] == 6 && c.header_counts[i] == 7);
            CHECK(c.leader_epochs[i] == 8 && c.timestamp_types[i] == 9);
        }
        for (size_t from = 0; from <= rows; from++) {
            uint8_t *other = malloc(ff_slab_bytes(rows - from) + 1);
            if (!other) abort();
            ff_columns to = ff_columns_of(other, rows - from);
            for (size_t i = 0; i < rows; i++) c.offsets[i] = (int64_t)i, c.timestamp_types[i] = (int8_t)i, c.leader_epochs[i] = (int32_t)i;
            ff_columns_copy(&to, &c, from, rows - from);
            for (size_t i = from; i < rows; i++)
                CHECK(to.offsets[i - from] == (int64_t)i && to.timestamp_types[i - from] == (int8_t)i &&
                      to.leader_epochs[i - from] == (int32_t)i && to.value_lengths[i - from] == 6);
            free(other);
        }
        free(slab);
    }
    return report();
}
