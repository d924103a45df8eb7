"""The one door to all codecs, and the choice between two providers of the same function pointers.

system   the machine's shared libraries (system_codecs.pyx): no GIL while inflating
python   packages (python_codecs.pyx)

Each codec takes the system's library where there is one; snappy is a kernel of its own. Environment FASTFETCH_CODECS=system|python|auto
chooses at import.
"""

import os

cimport cython
from fastfetch.kernels.containers cimport ff_extent, ff_lz4_extent, ff_lz4_inflate, ff_zstd_extent
from fastfetch.kernels.python_codecs cimport (
    python_gzip, python_lz4, python_module, python_states, python_version, python_zstd)
from fastfetch.kernels.snappy cimport ff_snappy_inflate, ff_snappy_size
from fastfetch.kernels.system_codecs cimport (
    free_system_states, system_gzip, system_has, system_lz4, system_version, system_zstd)
from fastfetch.kernels.wire cimport *


cdef extern from *:
    unsigned int CYTHON_HEX_VERSION


cdef enum:
    GZIP_EXPANSION = 1032       # deflate's limit

_wanted = "auto"
_idle = []              # Codecs that nobody uses; list.pop and append are atomic
cdef int generation = 0


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
    for codec, there in (("gzip", system_has.gzip), ("lz4", system_has.lz4), ("zstd", system_has.zstd)):
        if there and _wanted != "python":
            found[codec] = ("system", system_version(codec))
        elif _wanted != "system" and python_module(codec) is not None:
            found[codec] = ("python", python_version(codec))
        else:
            found[codec] = ("missing", "")
    found["snappy"] = ("built-in", "")
    return found


@cython.final
cdef class Codecs:
    def __cinit__(self):
        self.generation = generation
        found = {codec: provider for codec, (provider, _) in providers().items()}
        if "python" in found.values():
            self.python = python_states(&self.c)
            self.c.owner = <void *>self.python
        if found["gzip"] != "missing":
            self.c.gzip = system_gzip if found["gzip"] == "system" else python_gzip
        if found["zstd"] != "missing":
            self.c.zstd = system_zstd if found["zstd"] == "system" else python_zstd
        if found["lz4"] != "missing":
            self.c.lz4_block = system_lz4 if found["lz4"] == "system" else python_lz4

    def __dealloc__(self):
        free_system_states(&self.c)

    cdef int raise_pending(self) except -1:
        """Raise what a package raised (FF_RAISED)."""
        raised, self.python.raised = self.python.raised, None
        raise raised


cdef Codecs acquire_codecs(bint lz4_content_checksum):
    """A set of decompressors for one thread. Give it back with release_codecs."""
    cdef Codecs codecs
    try:
        codecs = _idle.pop()
    except IndexError:
        codecs = Codecs.__new__(Codecs)
    codecs.c.lz4_content_checksum = lz4_content_checksum
    codecs.c.unused = 0
    return codecs


cdef void release_codecs(Codecs codecs):
    if codecs.generation == generation and len(_idle) < 8:
        try:
            _idle.append(codecs)
        except MemoryError:             # then it is gone, and what it decoded is not
            pass


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
