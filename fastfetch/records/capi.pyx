"""The capsule behind include/fastfetch/capi.h: decode(), blocks and the walk over a fetch response for C programs."""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory, PyMemoryView_GET_BUFFER
from cpython.pycapsule cimport PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from fastfetch.kernels.fetch cimport *
from fastfetch.kernels.wire cimport *
from fastfetch.records.block cimport RecordBlock
from fastfetch.records.decode import decode


cdef extern from "fastfetch/capi.h":
    enum:
        FF_CAPI_VERSION
        FF_CAPI_REVISION
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
        int64_t max_bytes
        int32_t threads

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
        int64_t rows
        int64_t batches
        int64_t records_dropped
        int64_t inflated_bytes

    ctypedef struct ff_capi:
        int version
        int revision
        ff_decoded *(*decode)(const uint8_t *, size_t, const ff_decode_options *) except NULL
        void (*release)(ff_decoded *) noexcept
        ff_decoded *(*decode_anywhere)(const uint8_t *, size_t, const ff_decode_options *, char *, size_t) noexcept
        int (*block_of)(object, ff_decoded_block *) except -1
        int (*fetch_open)(ff_fetch_walk *, const uint8_t *, size_t, int) noexcept nogil
        int (*fetch_next)(ff_fetch_walk *, ff_fetch_partition *, bint *) noexcept nogil
        void (*fetch_next_aborted)(ff_reader *, bint, int64_t *, int64_t *) noexcept nogil
        bint (*fetch_next_endpoint)(ff_fetch_walk *, ff_fetch_endpoint *) noexcept nogil
        const char *(*fetch_field_text)(int) noexcept nogil


cdef extern from *:
    """
    #include <stddef.h>
    #define FF_OLDEST_OPTIONS offsetof(ff_decode_options, max_bytes)
    """
    size_t FF_OLDEST_OPTIONS            # bytes of the struct as it was at first


cdef int read_options(const ff_decode_options *given, ff_decode_options *out) except -1:
    """A caller may have been compiled when the struct was shorter: the rest is 0 then, as before. Or longer: what is not known here has
    to be 0."""
    cdef size_t size = given.struct_bytes
    cdef size_t known = min(size, sizeof(ff_decode_options))
    cdef size_t i
    if size < FF_OLDEST_OPTIONS:
        raise ValueError(f"ff_decode_options of {size} bytes; start from FF_DECODE_DEFAULTS")
    for i in range(known, size):
        if (<const uint8_t *>given)[i]:
            raise ValueError(
                f"ff_decode_options of {size} bytes has an option at byte {i} that fastfetch's C API {FF_CAPI_VERSION}.{FF_CAPI_REVISION} "
                "lacks; a newer fastfetch has it"
            )
    memcpy(out, given, known)
    return 0


cdef void fill(ff_decoded_block *out, RecordBlock block) noexcept:
    cdef ff_columns *c = &out.columns
    out.columns = block.columns
    if block.first:                      # a slice: its own rows
        c.offsets += block.first
        c.timestamps += block.first
        c.key_starts += block.first
        c.key_lengths += block.first
        c.value_starts += block.first
        c.value_lengths += block.first
        c.header_counts += block.first
        c.leader_epochs += block.first
        c.timestamp_types += block.first
    out.rows = <size_t>block.n
    out.data = block.origin
    out.data_bytes = <size_t>PyMemoryView_GET_BUFFER(block.view).len
    out.next_offset = block.next_offset


cdef int c_block_of(object block, ff_decoded_block *out) except -1:
    if not isinstance(block, RecordBlock):
        raise TypeError(f"a fastfetch.RecordBlock is needed, not {type(block).__name__}")
    fill(out, block)
    return 0


cdef ff_decoded *c_decode(const uint8_t *data, size_t n, const ff_decode_options *given) except NULL:
    cdef ff_decode_options options
    cdef ff_decoded *out
    cdef size_t i
    options.max_bytes = options.threads = 0
    read_options(given, &options)
    view = PyMemoryView_FromMemory(<char *>data, <Py_ssize_t>n, PyBUF_READ) if n else memoryview(b"")
    result = decode(
        view,
        position=options.position if options.position >= 0 else None,
        isolation="read_committed" if options.read_committed else "read_uncommitted",
        aborted=[(options.aborted[2 * i], options.aborted[2 * i + 1]) for i in range(options.aborted_n)],
        check_crcs=options.check_crcs != 0,
        max_batch_bytes=options.max_batch_bytes,
        max_bytes=options.max_bytes or None,
        threads=options.threads or 1,
        lz4_content_checksum=options.lz4_content_checksum != 0,
    )
    text = str(result.error).encode(errors="replace") if result.error is not None else None
    owner = (result, text)
    out = <ff_decoded *>calloc(1, sizeof(ff_decoded))
    if out == NULL:
        raise MemoryError
    out.blocks = <ff_decoded_block *>calloc(len(result.blocks) + 1, sizeof(ff_decoded_block))
    if out.blocks == NULL:
        free(out)
        raise MemoryError
    for block in result.blocks:
        fill(&out.blocks[out.blocks_n], block)
        out.blocks_n += 1
    out.next_offset = -1 if result.next_offset is None else result.next_offset
    out.consumed = <size_t>result.consumed
    out.skip_to = -1
    if result.error is not None:
        out.status = result.error.status
        out.error = PyBytes_AS_STRING(text)
        if result.error.skip_trusted:
            out.skip_to = result.error.next_offset
    out.rows = result.stats.records
    out.batches = result.stats.batches
    out.records_dropped = result.stats.records_dropped
    out.inflated_bytes = result.stats.inflated_bytes
    Py_INCREF(owner)
    out.owner = <void *>owner
    return out


cdef void say(object error, char *why, size_t why_bytes) noexcept:
    """The reason into a caller's buffer, cut where that ends."""
    cdef bytes text
    cdef size_t size
    if why == NULL or why_bytes == 0:
        return
    why[0] = 0
    text = f"{type(error).__name__}: {error}".encode(errors="replace")
    size = min(<size_t>len(text), why_bytes - 1)
    memcpy(why, PyBytes_AS_STRING(text), size)
    why[size] = 0


cdef ff_decoded *c_decode_anywhere(
        const uint8_t *data, size_t n, const ff_decode_options *options, char *why, size_t why_bytes) noexcept with gil:
    try:
        return c_decode(data, n, options)
    except BaseException as error:
        say(error, why, why_bytes)
        return NULL


cdef void c_release(ff_decoded *decoded) noexcept with gil:
    cdef object owner
    if decoded != NULL:
        owner = <object>decoded.owner
        free(decoded.blocks)
        free(decoded)
        Py_DECREF(owner)


cdef ff_capi _capi
_capi.version = FF_CAPI_VERSION
_capi.revision = FF_CAPI_REVISION
_capi.decode = c_decode
_capi.release = c_release
_capi.decode_anywhere = c_decode_anywhere
_capi.block_of = c_block_of
_capi.fetch_open = ff_fetch_open
_capi.fetch_next = ff_fetch_next
_capi.fetch_next_aborted = ff_fetch_next_aborted
_capi.fetch_next_endpoint = ff_fetch_next_endpoint
_capi.fetch_field_text = ff_fetch_field_text
_C_API = PyCapsule_New(&_capi, FF_CAPI_CAPSULE, NULL)
