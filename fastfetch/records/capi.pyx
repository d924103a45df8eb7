"""The capsule behind include/fastfetch/capi.h: decode() for C programs."""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory, PyMemoryView_GET_BUFFER
from cpython.pycapsule cimport PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdlib cimport calloc, free

from fastfetch.kernels.wire cimport *
from fastfetch.records.block cimport RecordBlock
from fastfetch.records.decode import decode


cdef extern from "fastfetch/capi.h":
    enum:
        FF_CAPI_VERSION
    const char *FF_CAPI_CAPSULE

    ctypedef struct ff_decode_options:
        size_t struct_bytes
        int64_t position
        int read_committed
        const int64_t *aborted
        size_t aborted_n
        int check_crcs
        int64_t max_batch_bytes
        int lz4_content_checksum

    ctypedef struct ff_decoded_block:
        ff_columns columns
        size_t rows
        const uint8_t *data
        size_t data_bytes
        int64_t next_offset

    ctypedef struct ff_decoded:
        ff_decoded_block *blocks
        size_t blocks_n
        int64_t next_offset
        size_t consumed
        int status
        int64_t skip_to
        const char *error
        void *owner

    ctypedef struct ff_capi:
        int version
        ff_decoded *(*decode)(const uint8_t *, size_t, const ff_decode_options *) except NULL
        void (*release)(ff_decoded *) noexcept


cdef ff_decoded *c_decode(const uint8_t *data, size_t n, const ff_decode_options *options) except NULL:
    cdef ff_decoded *out
    cdef RecordBlock block
    cdef ff_decoded_block *b
    cdef size_t i
    if options.struct_bytes < sizeof(ff_decode_options):
        raise ValueError(f"ff_decode_options of {options.struct_bytes} bytes; start from FF_DECODE_DEFAULTS")
    view = PyMemoryView_FromMemory(<char *>data, <Py_ssize_t>n, PyBUF_READ) if n else memoryview(b"")
    result = decode(
        view,
        position=options.position if options.position >= 0 else None,
        isolation="read_committed" if options.read_committed else "read_uncommitted",
        aborted=[(options.aborted[2 * i], options.aborted[2 * i + 1]) for i in range(options.aborted_n)],
        check_crcs=options.check_crcs != 0,
        max_batch_bytes=options.max_batch_bytes,
        lz4_content_checksum=options.lz4_content_checksum != 0,
    )
    text = str(result.error).encode() if result.error is not None else None
    owner = (result, text)
    out = <ff_decoded *>calloc(1, sizeof(ff_decoded))
    if out == NULL:
        raise MemoryError
    out.blocks = <ff_decoded_block *>calloc(len(result.blocks) + 1, sizeof(ff_decoded_block))
    if out.blocks == NULL:
        free(out)
        raise MemoryError
    for item in result.blocks:
        block = item
        b = &out.blocks[out.blocks_n]
        b.columns = block.columns
        b.rows = <size_t>block.n
        b.data = block.origin
        b.data_bytes = <size_t>PyMemoryView_GET_BUFFER(block.view).len
        b.next_offset = block.next_offset
        out.blocks_n += 1
    out.next_offset = -1 if result.next_offset is None else result.next_offset
    out.consumed = <size_t>result.consumed
    out.skip_to = -1
    if result.error is not None:
        out.status = result.error.status
        out.error = PyBytes_AS_STRING(text)
        if result.error.skip_trusted:
            out.skip_to = result.error.next_offset
    Py_INCREF(owner)
    out.owner = <void *>owner
    return out


cdef void c_release(ff_decoded *decoded) noexcept:
    cdef object owner
    if decoded != NULL:
        owner = <object>decoded.owner
        free(decoded.blocks)
        free(decoded)
        Py_DECREF(owner)


cdef ff_capi _capi
_capi.version = FF_CAPI_VERSION
_capi.decode = c_decode
_capi.release = c_release
_C_API = PyCapsule_New(&_capi, FF_CAPI_CAPSULE, NULL)
