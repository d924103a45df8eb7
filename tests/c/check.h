/* check.h: the smallest test frame that says which check failed. A program prints its number of checks and exits 0, or exits 1. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>

static int checks = 0, failures = 0;

#define CHECK(condition)                                                                  \
    do {                                                                                  \
        checks++;                                                                         \
        if (!(condition)) {                                                               \
            failures++;                                                                   \
            printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);                \
        }                                                                                 \
    } while (0)

static int report(void) {
    printf("%d checks, %d failed\n", checks, failures);
    return failures != 0;
}

#endif
