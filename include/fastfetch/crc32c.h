/* crc32c.h: CRC-32C (Castagnoli) with run-time dispatch, and the table form of zlib's CRC-32 for legacy messages.
 *
 * CRC-32C: polynomial 0x1EDC6F41, reflected, initial value and final xor all ones; "123456789" gives e3069283. Written from that
 * definition. Paths, best first: x86-64 folding with VPCLMULQDQ (AVX-512), x86-64 three streams of the crc32 instruction joined by
 * PCLMULQDQ, Arm CRC instructions, tables (eight bytes a step). All functions take and return the plain CRC: pass 0 to start, or the
 * CRC so far to go on. Plain C99 (with the compiler's vector intrinsics where it has them); allocates nothing.
 *
 * A constant K(n) below is x^n mod P, bit-reflected in 32 bits, and then shifted left by one where a 64 x 64 bit carry-less product
 * is taken: the product of two reflected operands comes out one bit short. */
#ifndef FASTFETCH_CRC32C_H
#define FASTFETCH_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define FF_CRC_X86 1
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__) && (defined(__GNUC__) || defined(__clang__))
#define FF_CRC_ARM 1
#if defined(__linux__)
#include <sys/auxv.h>
#endif
#endif

typedef uint32_t (*ff_crc_fn)(uint32_t crc, const uint8_t *data, size_t n);

enum { FF_CRC_PATH_UNKNOWN = 0, FF_CRC_PATH_TABLE, FF_CRC_PATH_CRC32, FF_CRC_PATH_FOLD, FF_CRC_PATH_ARM };

static inline const char *ff_crc_path_name(int path) {
    switch (path) {
    case FF_CRC_PATH_TABLE: return "table";
    case FF_CRC_PATH_CRC32: return "sse4.2+pclmul";
    case FF_CRC_PATH_FOLD: return "avx512+vpclmul";
    case FF_CRC_PATH_ARM: return "arm-crc";
    default: return "unknown";
    }
}

/* ------------------------------------------------------------------------------------------------ tables */

#define FF_CRC32C_POLYNOMIAL 0x82F63B78u /* 0x1EDC6F41 reflected */
#define FF_CRC32_POLYNOMIAL 0xEDB88320u  /* 0x04C11DB7 reflected: zlib's, used by message formats 0 and 1 */

typedef struct {
    uint32_t t[8][256];
    int state; /* 0 empty, 1 being filled, 2 ready */
} ff_crc_table;

static inline uint32_t ff_crc_byte(uint32_t crc, uint32_t polynomial) {
    for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (crc & 1 ? polynomial : 0);
    return crc;
}

/* Fill the table once. Two threads may arrive together: one fills it, the other does without this time. */
static inline int ff_crc_table_ready(ff_crc_table *table, uint32_t polynomial) {
    int empty = 0;
    if (__atomic_load_n(&table->state, __ATOMIC_ACQUIRE) == 2) return 1;
    if (!__atomic_compare_exchange_n(&table->state, &empty, 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return empty == 2;
    for (uint32_t i = 0; i < 256; i++) table->t[0][i] = ff_crc_byte(i, polynomial);
    for (int k = 1; k < 8; k++)
        for (int i = 0; i < 256; i++) table->t[k][i] = (table->t[k - 1][i] >> 8) ^ table->t[0][table->t[k - 1][i] & 0xff];
    __atomic_store_n(&table->state, 2, __ATOMIC_RELEASE);
    return 1;
}

static inline uint32_t ff_crc_sliced(ff_crc_table *table, uint32_t polynomial, uint32_t crc, const uint8_t *p, size_t n) {
    crc = ~crc;
    if (!ff_crc_table_ready(table, polynomial)) {
        while (n--) crc = ff_crc_byte(crc ^ *p++, polynomial) ;
        return ~crc;
    }
    while (n >= 8) {
        uint32_t low = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        crc = table->t[7][low & 0xff] ^ table->t[6][(low >> 8) & 0xff] ^ table->t[5][(low >> 16) & 0xff] ^ table->t[4][low >> 24] ^
              table->t[3][p[4]] ^ table->t[2][p[5]] ^ table->t[1][p[6]] ^ table->t[0][p[7]];
        p += 8;
        n -= 8;
    }
    while (n--) crc = (crc >> 8) ^ table->t[0][(crc ^ *p++) & 0xff];
    return ~crc;
}

static inline uint32_t ff_crc32c_table(uint32_t crc, const uint8_t *p, size_t n) {
    static ff_crc_table table;
    return ff_crc_sliced(&table, FF_CRC32C_POLYNOMIAL, crc, p, n);
}

/* zlib's CRC-32, for messages of magic 0 and 1 only: old data, so tables are good enough. */
static inline uint32_t ff_crc32(uint32_t crc, const uint8_t *p, size_t n) {
    static ff_crc_table table;
    return ff_crc_sliced(&table, FF_CRC32_POLYNOMIAL, crc, p, n);
}

/* ------------------------------------------------------------------------------------------------ x86-64 */
#if defined(FF_CRC_X86)

/* Clang has the crc32 instruction as a feature of its own; the attribute "sse4.2" does not bring it there. */
#if defined(__clang__) && __clang_major__ >= 14
#define FF_CRC_INSTRUCTION "sse4.2,crc32"
#else
#define FF_CRC_INSTRUCTION "sse4.2"
#endif

__attribute__((target(FF_CRC_INSTRUCTION))) static inline uint32_t ff_crc_serial(uint32_t state, const uint8_t *p, size_t n) {
    uint64_t crc = state, word;
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&word, p, 8);
        crc = _mm_crc32_u64(crc, word);
    }
    for (; n; n--) crc = _mm_crc32_u8((uint32_t)crc, *p++);
    return (uint32_t)crc;
}

/* Move a CRC state over a stretch of zero bytes: times x^(8 n), as the product with K(8 n - 33) and one crc32 step. */
__attribute__((target(FF_CRC_INSTRUCTION ",pclmul"))) static inline uint64_t ff_crc_shift(uint64_t state, uint64_t k) {
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)state), _mm_cvtsi64_si128((long long)k), 0);
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

/* Three neighbouring stretches at once (the instruction has a latency of three and a throughput of one), then joined. */
#define FF_CRC_THREE_WAY(STRETCH, K_ONE, K_TWO)                                                                                     \
    while (n >= 3 * (STRETCH)) {                                                                                                    \
        uint64_t b = 0, c = 0, x, y, z;                                                                                             \
        for (const uint8_t *stop = p + (STRETCH); p < stop; p += 8) {                                                               \
            memcpy(&x, p, 8);                                                                                                       \
            memcpy(&y, p + (STRETCH), 8);                                                                                           \
            memcpy(&z, p + 2 * (STRETCH), 8);                                                                                       \
            a = _mm_crc32_u64(a, x);                                                                                                \
            b = _mm_crc32_u64(b, y);                                                                                                \
            c = _mm_crc32_u64(c, z);                                                                                                \
        }                                                                                                                           \
        a = ff_crc_shift(a, K_TWO) ^ ff_crc_shift(b, K_ONE) ^ c;                                                                    \
        p += 2 * (STRETCH);                                                                                                         \
        n -= 3 * (STRETCH);                                                                                                         \
    }

__attribute__((target(FF_CRC_INSTRUCTION ",pclmul"))) static inline uint32_t ff_crc32c_crc32(uint32_t crc, const uint8_t *p, size_t n) {
    uint64_t a = (uint32_t)~crc;
    FF_CRC_THREE_WAY(4096, 0x82f89c77u, 0x54a86326u) /* K(8*4096-33), K(8*8192-33) */
    FF_CRC_THREE_WAY(256, 0xb9e02b86u, 0xdd7e3b0cu)  /* K(8*256-33), K(8*512-33) */
    return ~ff_crc_serial((uint32_t)a, p, n);
}
#undef FF_CRC_THREE_WAY

#define FF_CRC_FOLD_TARGET "avx512f,avx512dq,avx512vl,vpclmulqdq,pclmul," FF_CRC_INSTRUCTION

/* Each 128-bit lane moved forward by the distance its constants stand for, and the bytes found there added. */
__attribute__((target(FF_CRC_FOLD_TARGET))) static inline __m512i ff_crc_fold(__m512i lane, __m512i k, __m512i next) {
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(lane, k, 0x00), _mm512_clmulepi64_epi128(lane, k, 0x11), next, 0x96);
}

/* 256 bytes a step in four registers of four lanes. Constants are pairs (K(d + 32) << 1, K(d - 32) << 1) for a distance of d bits. */
__attribute__((target(FF_CRC_FOLD_TARGET))) static inline uint32_t ff_crc32c_fold(uint32_t crc, const uint8_t *p, size_t n) {
    if (n < 512) return ff_crc32c_crc32(crc, p, n);
    const __m512i k2048 = _mm512_broadcast_i32x4(_mm_set_epi64x(0xb9e02b86, 0xdcb17aa4));
    const __m512i k512 = _mm512_broadcast_i32x4(_mm_set_epi64x(0x9e4addf8, 0x740eef02));
    __m512i a = _mm512_loadu_si512(p), b = _mm512_loadu_si512(p + 64);
    __m512i c = _mm512_loadu_si512(p + 128), d = _mm512_loadu_si512(p + 192);
    a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc)));
    for (p += 256, n -= 256; n >= 256; p += 256, n -= 256) {
        a = ff_crc_fold(a, k2048, _mm512_loadu_si512(p));
        b = ff_crc_fold(b, k2048, _mm512_loadu_si512(p + 64));
        c = ff_crc_fold(c, k2048, _mm512_loadu_si512(p + 128));
        d = ff_crc_fold(d, k2048, _mm512_loadu_si512(p + 192));
    }
    a = ff_crc_fold(ff_crc_fold(ff_crc_fold(a, k512, b), k512, c), k512, d);
    for (; n >= 64; p += 64, n -= 64) a = ff_crc_fold(a, k512, _mm512_loadu_si512(p));
    /* Lanes 0, 1, 2 onto lane 3: distances of 384, 256 and 128 bits. */
    const __m512i tail = _mm512_set_epi64(0, 0, 0x14cd00bd6, 0xf20c0dfe, 0xba4fc28e, 0x1384aa63a, 0x1d82c63da, 0x1c291d04);
    __m512i moved = _mm512_xor_si512(_mm512_clmulepi64_epi128(a, tail, 0x00), _mm512_clmulepi64_epi128(a, tail, 0x11));
    __m128i last = _mm_xor_si128(_mm512_extracti64x2_epi64(a, 3), _mm512_castsi512_si128(moved));
    last = _mm_xor_si128(last, _mm_xor_si128(_mm512_extracti64x2_epi64(moved, 1), _mm512_extracti64x2_epi64(moved, 2)));
    uint64_t state = _mm_crc32_u64(_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(last)), (uint64_t)_mm_extract_epi64(last, 1));
    return ~ff_crc_serial((uint32_t)state, p, n);
}

/* Asked of the processor itself: not every compiler's run-time library fills in __builtin_cpu_supports. */
static inline int ff_crc_path_supported(int path) {
    const unsigned pclmul = 1u << 1, sse42 = 1u << 20, osxsave = 1u << 27;             /* leaf 1, ecx */
    const unsigned avx512 = 1u << 16 | 1u << 17 | 1u << 31, vpclmul = 1u << 10;        /* leaf 7: f, dq, vl in ebx; ecx */
    const unsigned saved = 0xe6;                                                       /* XCR0: xmm, ymm, zmm and masks */
    unsigned a, b, c, d, low, high;
    if (path == FF_CRC_PATH_TABLE) return 1;
    if (path != FF_CRC_PATH_CRC32 && path != FF_CRC_PATH_FOLD) return 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & (pclmul | sse42)) != (pclmul | sse42)) return 0;
    if (path == FF_CRC_PATH_CRC32) return 1;
    if (!(c & osxsave)) return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & saved) != saved) return 0; /* the system does not keep the wide registers */
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & avx512) == avx512 && (c & vpclmul) != 0;
}

/* --------------------------------------------------------------------------------------------------- Arm */
#elif defined(FF_CRC_ARM)

#if defined(__clang__)
#define FF_CRC_ARM_TARGET "crc"
#else
#define FF_CRC_ARM_TARGET "+crc"
#endif

/* Inline assembly, so that neither <arm_acle.h> nor -march is needed. */
__attribute__((target(FF_CRC_ARM_TARGET))) static inline uint32_t ff_crc32c_arm(uint32_t crc, const uint8_t *p, size_t n) {
    uint32_t state = ~crc;
    uint64_t word;
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&word, p, 8);
        __asm__("crc32cx %w0, %w0, %x1" : "+r"(state) : "r"(word));
    }
    for (; n; n--, p++) {
        uint32_t byte = *p;
        __asm__("crc32cb %w0, %w0, %w1" : "+r"(state) : "r"(byte));
    }
    return ~state;
}

static inline int ff_crc_path_supported(int path) {
    if (path == FF_CRC_PATH_TABLE) return 1;
    if (path != FF_CRC_PATH_ARM) return 0;
#if defined(__APPLE__)
    return 1; /* every Apple arm64 core has them */
#elif defined(__linux__)
    return (getauxval(AT_HWCAP) & (1ul << 7)) != 0; /* HWCAP_CRC32 */
#else
    return 0;
#endif
}

#else
static inline int ff_crc_path_supported(int path) { return path == FF_CRC_PATH_TABLE; }
#endif

/* ---------------------------------------------------------------------------------------------- dispatch */

static inline ff_crc_fn ff_crc_function(int path) {
    switch (path) {
#if defined(FF_CRC_X86)
    case FF_CRC_PATH_CRC32: return ff_crc32c_crc32;
    case FF_CRC_PATH_FOLD: return ff_crc32c_fold;
#elif defined(FF_CRC_ARM)
    case FF_CRC_PATH_ARM: return ff_crc32c_arm;
#endif
    default: return ff_crc32c_table;
    }
}

/* The path used on this machine, found at the first call. Two threads may find it at once; they find the same. */
static inline int ff_crc_path(void) {
    static int chosen = FF_CRC_PATH_UNKNOWN;
    int path = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
    if (path == FF_CRC_PATH_UNKNOWN) {
        path = ff_crc_path_supported(FF_CRC_PATH_FOLD)    ? FF_CRC_PATH_FOLD
               : ff_crc_path_supported(FF_CRC_PATH_CRC32) ? FF_CRC_PATH_CRC32
               : ff_crc_path_supported(FF_CRC_PATH_ARM)   ? FF_CRC_PATH_ARM
                                                          : FF_CRC_PATH_TABLE;
        __atomic_store_n(&chosen, path, __ATOMIC_RELAXED);
    }
    return path;
}

static inline uint32_t ff_crc32c(uint32_t crc, const uint8_t *data, size_t n) {
    return ff_crc_function(ff_crc_path())(crc, data, n);
}

#endif
