"""gzip, lz4 and zstd through the machine's shared zlib, liblz4 and libzstd, resolved at run time.

Their ABIs are stable and few functions are used, so no header is needed to build. Nothing here takes the GIL. States are made on first use
and reused: making one costs as much as inflating a small batch.
"""

import os

from libc.stdlib cimport calloc, free

from fastfetch.kernels.wire cimport *


cdef extern from "dlfcn.h" nogil:
    void *dlopen(const char *name, int flags)
    void *dlsym(void *handle, const char *name)
    int RTLD_NOW
    int RTLD_LOCAL


# zlib's z_stream: part of its ABI since 1.2.0. All fields are zeroed before use.
ctypedef struct z_stream:
    const uint8_t *next_in
    unsigned int avail_in
    unsigned long total_in
    uint8_t *next_out
    unsigned int avail_out
    unsigned long total_out
    const char *msg
    void *state
    void *zalloc
    void *zfree
    void *opaque
    int data_type
    unsigned long adler
    unsigned long reserved

cdef enum:
    Z_NO_FLUSH = 0
    Z_OK = 0
    Z_STREAM_END = 1
    Z_MEM_ERROR = -4
    Z_BUF_ERROR = -5
    GZIP_ONLY = 31              # window bits: 15, and a gzip wrapper wanted
    ZSTD_DST_TOO_SMALL = 70     # ZSTD_ErrorCode: stable numbers since 1.3.1
    ZSTD_MEMORY = 64

ctypedef struct system_library:
    int (*inflate_init)(z_stream *stream, int bits, const char *version, int size) noexcept nogil
    int (*inflate)(z_stream *stream, int flush) noexcept nogil
    int (*inflate_reset)(z_stream *stream) noexcept nogil
    int (*inflate_end)(z_stream *stream) noexcept nogil
    const char *(*zlib_version)() noexcept nogil
    void *(*zstd_create)() noexcept nogil
    size_t (*zstd_free)(void *state) noexcept nogil
    size_t (*zstd_decompress)(void *state, void *dst, size_t cap, const void *src, size_t n) noexcept nogil
    unsigned int (*zstd_is_error)(size_t code) noexcept nogil
    int (*zstd_error_code)(size_t code) noexcept nogil
    unsigned int (*zstd_version)() noexcept nogil
    int (*lz4_decompress)(const void *src, void *dst, int n, int cap) noexcept nogil
    int (*lz4_decompress_dict)(const void *src, void *dst, int n, int cap, const void *start, int size) noexcept nogil
    int (*lz4_version)() noexcept nogil

cdef system_library lib


cdef int64_t system_gzip(void *context, const uint8_t *src, size_t n, uint8_t *dst, size_t cap) noexcept nogil:
    cdef ff_codecs *codecs = <ff_codecs *>context
    cdef z_stream *z = <z_stream *>codecs.gzip_state
    cdef size_t at = 0              # in src
    cdef size_t done = 0            # in dst
    cdef unsigned int gave_in, gave_out
    cdef int code
    if z == NULL:
        z = <z_stream *>calloc(1, sizeof(z_stream))
        if z == NULL:
            return -FF_NO_MEMORY
        if lib.inflate_init(z, GZIP_ONLY, lib.zlib_version(), sizeof(z_stream)) != Z_OK:
            free(z)
            return -FF_NO_MEMORY
        codecs.gzip_state = z
    while True:                     # one turn a member
        if lib.inflate_reset(z) != Z_OK:
            return -FF_BAD_INFLATE
        while True:
            gave_in = <unsigned int>min(n - at, <size_t>0x40000000)
            gave_out = <unsigned int>min(cap - done, <size_t>0x40000000)
            z.next_in = src + at
            z.avail_in = gave_in
            z.next_out = dst + done
            z.avail_out = gave_out
            code = lib.inflate(z, Z_NO_FLUSH)
            at += gave_in - z.avail_in
            done += gave_out - z.avail_out
            if code == Z_STREAM_END:
                break
            if code == Z_MEM_ERROR:
                return -FF_NO_MEMORY
            if code != Z_OK and code != Z_BUF_ERROR:
                return -FF_BAD_INFLATE
            if done == cap:
                return -FF_OUTPUT_FULL
            if at == n:             # no trailer: cut
                return -FF_BAD_INFLATE
        if n - at < 3 or src[at] != 0x1F or src[at + 1] != 0x8B or src[at + 2] != 8:
            codecs.unused += <int64_t>(n - at)
            return <int64_t>done


cdef int64_t system_zstd(void *context, const uint8_t *src, size_t n, uint8_t *dst, size_t cap) noexcept nogil:
    cdef ff_codecs *codecs = <ff_codecs *>context
    cdef size_t got
    cdef int code
    if codecs.zstd_state == NULL:
        codecs.zstd_state = lib.zstd_create()
        if codecs.zstd_state == NULL:
            return -FF_NO_MEMORY
    got = lib.zstd_decompress(codecs.zstd_state, dst, cap, src, n)
    if not lib.zstd_is_error(got):
        return <int64_t>got
    code = lib.zstd_error_code(got)
    return -FF_OUTPUT_FULL if code == ZSTD_DST_TOO_SMALL else -FF_NO_MEMORY if code == ZSTD_MEMORY else -FF_BAD_INFLATE


cdef int64_t system_lz4(void *context, const uint8_t *src, size_t n, uint8_t *dst, size_t cap, size_t history) noexcept nogil:
    # Only the checked entry points (CVE-2021-3520); sizes are at most 4 MiB, one block.
    cdef int got
    if history > 0:
        history = min(history, <size_t>65536)
        got = lib.lz4_decompress_dict(src, dst, <int>n, <int>cap, dst - history, <int>history)
    else:
        got = lib.lz4_decompress(src, dst, <int>n, <int>cap)
    return -FF_BAD_INFLATE if got < 0 else got


cdef void free_system_states(ff_codecs *codecs) noexcept nogil:
    """States that the functions above have made. The pointers are NULL where they have not."""
    if codecs.gzip_state != NULL:
        lib.inflate_end(<z_stream *>codecs.gzip_state)
        free(codecs.gzip_state)
    if codecs.zstd_state != NULL:
        lib.zstd_free(codecs.zstd_state)


cdef str system_version(str codec):
    cdef unsigned int v
    if codec == "gzip":
        return (<bytes>lib.zlib_version()).decode()
    v = lib.zstd_version() if codec == "zstd" else <unsigned int>lib.lz4_version()
    return f"{v // 10000}.{v // 100 % 100}.{v % 100}"


cdef void *resolve(list names, tuple symbols, void **out) except? NULL:
    """Load the first library that has all symbols; `out` takes them in order. NULL: none has."""
    cdef void *handle
    cdef Py_ssize_t i
    for name in names:
        handle = dlopen(<bytes>name, RTLD_NOW | RTLD_LOCAL)
        if handle == NULL:
            continue
        for i in range(len(symbols)):
            out[i] = dlsym(handle, <bytes>symbols[i])
            if out[i] == NULL:
                break
        else:
            return handle
    return NULL


def _names(str base, str number):
    # The versioned name first: it states the ABI. macOS has zlib in its shared cache and the others where package managers put them.
    return [os.fsencode(name) for name in (
        f"lib{base}.so.{number}", f"lib{base}.{number}.dylib", f"/opt/homebrew/lib/lib{base}.{number}.dylib",
        f"/usr/local/lib/lib{base}.{number}.dylib")]


cdef load_system():
    cdef void *f[6]
    if resolve(_names("z", "1"), (b"inflateInit2_", b"inflate", b"inflateReset", b"inflateEnd", b"zlibVersion"), f) != NULL:
        lib.inflate_init = <int (*)(z_stream *, int, const char *, int) noexcept nogil>f[0]
        lib.inflate = <int (*)(z_stream *, int) noexcept nogil>f[1]
        lib.inflate_reset = <int (*)(z_stream *) noexcept nogil>f[2]
        lib.inflate_end = <int (*)(z_stream *) noexcept nogil>f[3]
        lib.zlib_version = <const char *(*)() noexcept nogil>f[4]
        system_has.gzip = True
    if resolve(_names("zstd", "1"), (b"ZSTD_createDCtx", b"ZSTD_freeDCtx", b"ZSTD_decompressDCtx", b"ZSTD_isError", b"ZSTD_getErrorCode",
                                     b"ZSTD_versionNumber"), f) != NULL:
        lib.zstd_create = <void *(*)() noexcept nogil>f[0]
        lib.zstd_free = <size_t (*)(void *) noexcept nogil>f[1]
        lib.zstd_decompress = <size_t (*)(void *, void *, size_t, const void *, size_t) noexcept nogil>f[2]
        lib.zstd_is_error = <unsigned int (*)(size_t) noexcept nogil>f[3]
        lib.zstd_error_code = <int (*)(size_t) noexcept nogil>f[4]
        lib.zstd_version = <unsigned int (*)() noexcept nogil>f[5]
        system_has.zstd = lib.zstd_version() >= 10400
    if resolve(_names("lz4", "1"), (b"LZ4_decompress_safe", b"LZ4_decompress_safe_usingDict", b"LZ4_versionNumber"), f) != NULL:
        lib.lz4_decompress = <int (*)(const void *, void *, int, int) noexcept nogil>f[0]
        lib.lz4_decompress_dict = <int (*)(const void *, void *, int, int, const void *, int) noexcept nogil>f[1]
        lib.lz4_version = <int (*)() noexcept nogil>f[2]
        system_has.lz4 = lib.lz4_version() >= 10800


load_system()
