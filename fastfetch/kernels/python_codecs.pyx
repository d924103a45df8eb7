"""gzip, lz4 and zstd through the standard library's zlib and the packages lz4 and zstandard, for machines without the shared libraries.

The GIL is taken for each batch. Each package has its traps: zlib and lz4 don't report a cut stream, zstandard stops at a frame's end and
ends a truncated stream in silence. The frames have been proved whole before (containers.pyx), and every call here has a limit.
"""

cimport cython
from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.string cimport memcpy

from fastfetch.kernels.wire cimport *


cdef enum:
    GZIP_ONLY = 31                  # window bits: 15, and a gzip wrapper wanted

cdef dict modules = {}              # imported on first need; None: not installed


cdef object python_module(str codec):
    """The package for a codec, or None."""
    name = {"gzip": "zlib", "lz4": "lz4.block", "zstd": "zstandard"}[codec]
    if name not in modules:
        try:
            modules[name] = __import__(name, fromlist=["*"])
        except ImportError:
            modules[name] = None
    return modules[name]


cdef str python_version(str codec):
    if codec == "gzip":
        return python_module(codec).ZLIB_RUNTIME_VERSION
    if codec == "lz4":
        return __import__("lz4").__version__
    return python_module(codec).__version__


cdef PythonStates python_states(ff_codecs *codecs):
    """Fresh states; codecs.owner has to point to them while the functions below are used."""
    cdef PythonStates states = PythonStates.__new__(PythonStates)
    states.codecs = codecs
    states.zlib = python_module("gzip")
    states.lz4_block = python_module("lz4")
    zstandard = python_module("zstd")
    if zstandard is not None:
        states.zstd = zstandard.ZstdDecompressor(max_window_size=1 << 27)
        states.zstd_error = zstandard.ZstdError
    return states


@cython.final
cdef class PythonStates:
    pass


cdef int64_t python_failed(PythonStates states, object error) noexcept:
    """An exception that is not about the bytes leaves through the Python edge."""
    if isinstance(error, MemoryError):
        return -FF_NO_MEMORY
    states.raised = error
    return -FF_RAISED


cdef inline PythonStates states_of(void *context):
    return <PythonStates>(<ff_codecs *>context).owner


cdef int64_t python_gzip(void *context, const uint8_t *src, size_t n, uint8_t *dst, size_t cap) noexcept with gil:
    cdef PythonStates states = states_of(context)
    cdef size_t done = 0
    cdef bytes piece
    try:
        data = PyMemoryView_FromMemory(<char *>src, <Py_ssize_t>n, PyBUF_READ)
        while True:
            member = states.zlib.decompressobj(GZIP_ONLY)
            while not member.eof:
                before = len(data)
                # max_length 0 means "no limit" there: with no room left one byte is asked for, to tell "full" from "at its end".
                piece = member.decompress(data, max(cap - done, <size_t>1))
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
                states.codecs.unused += len(data)
                return <int64_t>done
    except states.zlib.error:
        return -FF_BAD_INFLATE
    except BaseException as error:
        return python_failed(states, error)


cdef int64_t python_zstd(void *context, const uint8_t *src, size_t n, uint8_t *dst, size_t cap) noexcept with gil:
    cdef PythonStates states = states_of(context)
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
        return python_failed(states, error)


cdef int64_t python_lz4(void *context, const uint8_t *src, size_t n, uint8_t *dst, size_t cap, size_t history) noexcept with gil:
    cdef PythonStates states = states_of(context)
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
        return python_failed(states, error)
