"""gzip, lz4 and zstd through two providers of the same function pointers; snappy is a kernel of its own.

system   the shared liblz4, libzstd and zlib of the machine, resolved at run time. Their ABIs are stable and few functions are used, so
         no header is needed to build. No GIL while inflating; contexts are reused (making one costs as much as a small batch).
python   the packages lz4 and zstandard and the standard library's zlib, called with the GIL taken for that batch.

Each codec takes the system's library where there is one. Environment FASTFETCH_CODECS=system|python|auto chooses at import.
"""

import os

from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from fastfetch.kernels.containers cimport ff_extent, ff_lz4_extent, ff_lz4_inflate, ff_zstd_extent
from fastfetch.kernels.snappy cimport ff_snappy_inflate, ff_snappy_size
from fastfetch.kernels.wire cimport *


cdef extern from *:
    unsigned int CYTHON_HEX_VERSION


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
    GZIP_EXPANSION = 1032       # deflate's limit
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


# --------------------------------------------------------------------------------------------- system provider

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


# --------------------------------------------------------------------------------------------- Python provider

cdef class PythonStates:
    """Modules and decompressors of the Python provider for one Codecs."""

    cdef object zlib, lz4_block, zstd, zstd_error


cdef int64_t python_failed(Codecs codecs, object error) noexcept:
    """An exception that is not about the bytes leaves through the Python edge."""
    if isinstance(error, MemoryError):
        return -FF_NO_MEMORY
    codecs.raised = error
    return -FF_RAISED


cdef inline Codecs owner_of(void *context):
    return <Codecs>(<ff_codecs *>context).owner


cdef int64_t python_gzip(void *context, const uint8_t *src, size_t n, uint8_t *dst, size_t cap) noexcept with gil:
    cdef Codecs codecs = owner_of(context)
    cdef PythonStates states = codecs.python
    cdef size_t done = 0
    cdef bytes piece
    try:
        data = PyMemoryView_FromMemory(<char *>src, <Py_ssize_t>n, PyBUF_READ)
        while True:
            member = states.zlib.decompressobj(GZIP_ONLY)
            while not member.eof:
                before = len(data)
                # max_length 0 means "no limit" there: with no room left one byte is asked for, to tell "full" from "at its end".
                piece = member.decompress(data, max(cap - done, 1))
                data = member.unconsumed_tail
                if <size_t>len(piece) > cap - done:
                    return -FF_OUTPUT_FULL
                if not piece and not member.eof and len(data) == before:
                    return -FF_BAD_INFLATE      # no trailer: cut
                memcpy(dst + done, <const char *>piece, <size_t>len(piece))
                done += <size_t>len(piece)
                if not data and not piece and not member.eof:
                    return -FF_BAD_INFLATE
            data = member.unused_data
            if data[:3] != b"\x1f\x8b\x08":
                codecs.c.unused += len(data)
                return <int64_t>done
    except states.zlib.error:
        return -FF_BAD_INFLATE
    except BaseException as error:
        return python_failed(codecs, error)


cdef int64_t python_zstd(void *context, const uint8_t *src, size_t n, uint8_t *dst, size_t cap) noexcept with gil:
    cdef Codecs codecs = owner_of(context)
    cdef PythonStates states = codecs.python
    cdef size_t done = 0
    cdef Py_ssize_t got
    try:
        data = PyMemoryView_FromMemory(<char *>src, <Py_ssize_t>n, PyBUF_READ)
        room = PyMemoryView_FromMemory(<char *>dst, <Py_ssize_t>cap, PyBUF_WRITE)
        with states.zstd.stream_reader(data, read_across_frames=True) as reader:
            while done < cap:
                got = reader.readinto(room[done:])
                if got == 0:
                    return <int64_t>done
                done += <size_t>got
            return <int64_t>done if not reader.read(1) else -FF_OUTPUT_FULL
    except states.zstd_error:
        return -FF_BAD_INFLATE
    except BaseException as error:
        return python_failed(codecs, error)


cdef int64_t python_lz4(void *context, const uint8_t *src, size_t n, uint8_t *dst, size_t cap, size_t history) noexcept with gil:
    cdef Codecs codecs = owner_of(context)
    cdef PythonStates states = codecs.python
    cdef bytes block
    try:
        data = PyMemoryView_FromMemory(<char *>src, <Py_ssize_t>n, PyBUF_READ)
        history = min(history, <size_t>65536)
        if history > 0:
            block = states.lz4_block.decompress(
                data, uncompressed_size=cap, dict=PyMemoryView_FromMemory(<char *>(dst - history), <Py_ssize_t>history, PyBUF_READ))
        else:
            block = states.lz4_block.decompress(data, uncompressed_size=cap)
        if <size_t>len(block) > cap:
            return -FF_BAD_INFLATE
        memcpy(dst, <const char *>block, <size_t>len(block))
        return len(block)
    except states.lz4_block.LZ4BlockError:
        return -FF_BAD_INFLATE
    except BaseException as error:
        return python_failed(codecs, error)


# ------------------------------------------------------------------------------------------------ choosing

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


cdef bint have_zlib = False
cdef bint have_zstd = False
cdef bint have_lz4 = False


cdef load_system():
    global have_zlib, have_zstd, have_lz4
    cdef void *f[6]
    if resolve(_names("z", "1"), (b"inflateInit2_", b"inflate", b"inflateReset", b"inflateEnd", b"zlibVersion"), f) != NULL:
        lib.inflate_init = <int (*)(z_stream *, int, const char *, int) noexcept nogil>f[0]
        lib.inflate = <int (*)(z_stream *, int) noexcept nogil>f[1]
        lib.inflate_reset = <int (*)(z_stream *) noexcept nogil>f[2]
        lib.inflate_end = <int (*)(z_stream *) noexcept nogil>f[3]
        lib.zlib_version = <const char *(*)() noexcept nogil>f[4]
        have_zlib = True
    if resolve(_names("zstd", "1"), (b"ZSTD_createDCtx", b"ZSTD_freeDCtx", b"ZSTD_decompressDCtx", b"ZSTD_isError", b"ZSTD_getErrorCode",
                                     b"ZSTD_versionNumber"), f) != NULL:
        lib.zstd_create = <void *(*)() noexcept nogil>f[0]
        lib.zstd_free = <size_t (*)(void *) noexcept nogil>f[1]
        lib.zstd_decompress = <size_t (*)(void *, void *, size_t, const void *, size_t) noexcept nogil>f[2]
        lib.zstd_is_error = <unsigned int (*)(size_t) noexcept nogil>f[3]
        lib.zstd_error_code = <int (*)(size_t) noexcept nogil>f[4]
        lib.zstd_version = <unsigned int (*)() noexcept nogil>f[5]
        have_zstd = lib.zstd_version() >= 10400
    if resolve(_names("lz4", "1"), (b"LZ4_decompress_safe", b"LZ4_decompress_safe_usingDict", b"LZ4_versionNumber"), f) != NULL:
        lib.lz4_decompress = <int (*)(const void *, void *, int, int) noexcept nogil>f[0]
        lib.lz4_decompress_dict = <int (*)(const void *, void *, int, int, const void *, int) noexcept nogil>f[1]
        lib.lz4_version = <int (*)() noexcept nogil>f[2]
        have_lz4 = lib.lz4_version() >= 10800


load_system()

_modules = {}           # what the Python provider uses, imported on first need
_wanted = "auto"
_idle = []              # Codecs that nobody uses; list.pop and append are atomic
cdef int generation = 0


def _python_module(name):
    if name not in _modules:
        try:
            _modules[name] = __import__(name, fromlist=["*"])
        except ImportError:
            _modules[name] = None
    return _modules[name]


def use_provider(name: str) -> None:
    """Choose "system", "python" or "auto" (system where found, else Python) for everything decoded from now on. For tests and diagnosis."""
    global _wanted, generation
    if name not in ("auto", "system", "python"):
        raise ValueError(f'codec provider must be "auto", "system" or "python"; got {name!r}')
    _wanted = name
    generation += 1
    _idle.clear()


def providers() -> dict:
    """{codec: (provider, version)} as the next decode will use them. provider is "system", "python", "built-in" or "missing"."""
    found = {}
    for codec, there in (("gzip", have_zlib), ("lz4", have_lz4), ("zstd", have_zstd)):
        module = _python_module({"gzip": "zlib", "lz4": "lz4.block", "zstd": "zstandard"}[codec])
        if there and _wanted != "python":
            found[codec] = ("system", _system_version(codec))
        elif module is not None and _wanted != "system":
            found[codec] = ("python", _python_version(codec))
        else:
            found[codec] = ("missing", "")
    found["snappy"] = ("built-in", "")
    return found


def _system_version(codec):
    cdef unsigned int v
    if codec == "gzip":
        return (<bytes>lib.zlib_version()).decode()
    v = lib.zstd_version() if codec == "zstd" else <unsigned int>lib.lz4_version()
    return f"{v // 10000}.{v // 100 % 100}.{v % 100}"


def _python_version(codec):
    if codec == "gzip":
        return _python_module("zlib").ZLIB_RUNTIME_VERSION
    return _python_module({"lz4": "lz4", "zstd": "zstandard"}[codec]).__version__


cdef class Codecs:
    def __cinit__(self):
        cdef PythonStates states
        self.generation = generation
        found = {codec: provider for codec, (provider, _) in providers().items()}
        if found["gzip"] == "system":
            self.c.gzip = system_gzip
        if found["zstd"] == "system":
            self.c.zstd = system_zstd
        if found["lz4"] == "system":
            self.c.lz4_block = system_lz4
        if "python" not in (found["gzip"], found["zstd"], found["lz4"]):
            return
        self.c.owner = <void *>self
        self.python = states = PythonStates.__new__(PythonStates)
        states.zlib = _python_module("zlib")
        states.lz4_block = _python_module("lz4.block")
        if found["gzip"] == "python":
            self.c.gzip = python_gzip
        if found["lz4"] == "python":
            self.c.lz4_block = python_lz4
        if found["zstd"] == "python":
            zstandard = _python_module("zstandard")
            states.zstd = zstandard.ZstdDecompressor(max_window_size=1 << 27)
            states.zstd_error = zstandard.ZstdError
            self.c.zstd = python_zstd

    def __dealloc__(self):
        if self.c.gzip_state != NULL:
            lib.inflate_end(<z_stream *>self.c.gzip_state)
            free(self.c.gzip_state)
        if self.c.zstd_state != NULL:
            lib.zstd_free(self.c.zstd_state)


cdef Codecs acquire_codecs(bint lz4_content_checksum):
    """A set of decompressors for one thread. Give it back with release_codecs."""
    cdef Codecs codecs
    try:
        codecs = _idle.pop()
    except IndexError:
        codecs = Codecs.__new__(Codecs)
    codecs.c.lz4_content_checksum = lz4_content_checksum
    codecs.c.unused = 0
    codecs.raised = None
    return codecs


cdef void release_codecs(Codecs codecs):
    if codecs.generation == generation and len(_idle) < 8:
        _idle.append(codecs)


# ------------------------------------------------------------------------------------------------ the door

cdef int ff_plan_inflate(int codec, const uint8_t *src, size_t n, int64_t *unused, ff_plan *plan) noexcept nogil:
    """Prove a payload's framing and tell how much room it needs. Nothing is inflated."""
    cdef ff_extent extent
    cdef int status
    if codec == FF_CODEC_GZIP:
        plan.least = 0
        plan.most = <uint64_t>n * GZIP_EXPANSION
        # The trailer's size (of the last member, modulo 2^32) is only a guess; growth is bounded by `most`.
        plan.guess = ff_load32_le(src + n - 4) if n >= 18 else n
        if plan.guess < n:
            plan.guess = n
    elif codec == FF_CODEC_SNAPPY:
        status = ff_snappy_size(src, n, &plan.most, unused)
        if status != FF_OK:
            return status
        plan.least = plan.guess = plan.most
    else:
        status = ff_lz4_extent(src, n, &extent) if codec == FF_CODEC_LZ4 else ff_zstd_extent(src, n, &extent)
        if status != FF_OK:
            return status
        plan.most = plan.guess = extent.most
        plan.least = extent.least
        unused[0] += extent.unused
    if plan.guess > plan.most:
        plan.guess = plan.most
    return FF_OK


cdef int64_t ff_inflate(ff_codecs *codecs, int codec, int magic, const uint8_t *src, size_t n, uint8_t *dst, size_t cap) noexcept nogil:
    """Inflate a payload that ff_plan_inflate has proved. Returns the size, or -ff_status (-FF_OUTPUT_FULL: more room and again)."""
    cdef uint64_t size
    cdef int64_t ignored = 0
    cdef int status
    if codec == FF_CODEC_GZIP:
        return codecs.gzip(codecs, src, n, dst, cap) if codecs.gzip != NULL else -FF_MISSING_CODEC
    if codec == FF_CODEC_LZ4:
        return ff_lz4_inflate(codecs, src, n, dst, cap, magic == 0) if codecs.lz4_block != NULL else -FF_MISSING_CODEC
    if codec == FF_CODEC_ZSTD:
        return codecs.zstd(codecs, src, n, dst, cap) if codecs.zstd != NULL else -FF_MISSING_CODEC
    status = ff_snappy_size(src, n, &size, &ignored)
    if status == FF_OK and size > cap:
        status = FF_OUTPUT_FULL
    if status == FF_OK:
        status = ff_snappy_inflate(src, n, dst, <size_t>size)
    return <int64_t>size if status == FF_OK else -status


use_provider(os.environ.get("FASTFETCH_CODECS") or "auto")


CYTHON_VERSION = f"{CYTHON_HEX_VERSION >> 24}.{CYTHON_HEX_VERSION >> 16 & 0xFF}.{CYTHON_HEX_VERSION >> 8 & 0xFF}"


def crc_path() -> str:
    """The CRC-32C path in use, by its name in crc32c.h."""
    return ff_crc_path_name(ff_crc_path()).decode()


def crc_paths() -> list:
    """All CRC-32C paths that this CPU can take."""
    return [ff_crc_path_name(path).decode() for path in range(1, 5) if ff_crc_path_supported(path)]
