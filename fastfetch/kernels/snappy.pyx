"""Snappy decompression, from the public format description (google/snappy, format_description.txt).

Raw block: varint uncompressed length (at most 32 bits), then elements. Two low bits of an element's tag byte:
    00 literal, length - 1 in the upper six bits, or in the 1..4 bytes that follow (60..63)
    01 copy, 3 bits of length - 4, 11 bits of offset       10 copy, 6 bits of length - 1, 16 bits of offset (LE)       11 the same, 32 bits
Java framing: 82 53 4e 41 50 50 59 00 | version int32 | compatible int32 | { chunk length int32 | raw block } ..., big-endian. Versions
are ignored: some brokers write them little-endian, and Java does not look. Framed streams may follow one another.
"""

from libc.string cimport memcpy

from fastfetch.kernels.wire cimport *


cdef enum:
    FRAME_HEADER_BYTES = 16
    SLOP = 16            # a fast copy writes 16 bytes at a time and so needs this much room after the last one


cdef inline bint is_framed(const uint8_t *src, size_t n) noexcept nogil:
    # All eight bytes of the mark: 0x82 alone is also a legal first byte of a raw block.
    return n >= FRAME_HEADER_BYTES and ff_load64(src) == <uint64_t>0x82534E4150505900


cdef inline int next_chunk(ff_reader *r, const uint8_t **chunk, size_t *n) noexcept nogil:
    """The next chunk of a framed stream. FF_PARTIAL: none is left (1 to 3 stray bytes remain in the reader)."""
    cdef int32_t length
    while is_framed(r.at, ff_left(r)):       # another stream behind the first
        ff_take(r, FRAME_HEADER_BYTES)
    if ff_left(r) < 4:
        return FF_PARTIAL
    length = ff_int32(r)
    if length <= 0 or <size_t>length > ff_left(r):
        return FF_BAD_INFLATE
    n[0] = <size_t>length
    chunk[0] = ff_take(r, n[0])
    return FF_OK


cdef int ff_snappy_size(const uint8_t *src, size_t n, uint64_t *size, int64_t *unused) noexcept nogil:
    """Declared uncompressed size of all there is: exact if the data is good. The caller compares it with a cap before it allocates."""
    cdef ff_reader r = ff_reader_of(src, n)
    cdef ff_reader raw
    cdef const uint8_t *chunk
    cdef size_t length
    cdef bint any_chunk = False
    cdef int status
    size[0] = 0
    if not is_framed(src, n):
        size[0] = ff_uvarint(&r, 32)
        return FF_BAD_INFLATE if r.bad else FF_OK
    while True:
        status = next_chunk(&r, &chunk, &length)
        if status == FF_PARTIAL:
            unused[0] += <int64_t>ff_left(&r)
            return FF_OK if any_chunk else FF_BAD_INFLATE
        if status != FF_OK:
            return status
        raw = ff_reader_of(chunk, length)
        size[0] += ff_uvarint(&raw, 32)      # at most n / 5 chunks of < 2^32: no overflow
        if raw.bad:
            return FF_BAD_INFLATE
        any_chunk = True


cdef inline int copy_back(uint8_t *start, uint8_t **at, uint8_t *end, size_t offset, size_t length) noexcept nogil:
    """Append `length` bytes from `offset` bytes back; the stretches may overlap, which repeats a pattern."""
    cdef uint8_t *to = at[0]
    cdef const uint8_t *source
    cdef size_t done
    if offset == 0 or offset > <size_t>(to - start) or length > <size_t>(end - to):
        return FF_BAD_INFLATE
    source = to - offset
    at[0] = to + length
    if offset >= 16 and <size_t>(end - to) >= length + SLOP:
        done = 0
        while done < length:                 # each 16 byte piece lies wholly behind what it is copied to
            memcpy(to + done, source + done, 16)
            done += 16
    elif offset >= length:
        memcpy(to, source, length)
    else:
        for done in range(length):
            to[done] = source[done]
    return FF_OK


cdef int inflate_raw(const uint8_t *src, size_t n, uint8_t *dst, size_t cap, size_t *produced) noexcept nogil:
    cdef ff_reader r = ff_reader_of(src, n)
    cdef uint64_t declared = ff_uvarint(&r, 32)
    cdef uint8_t *at = dst
    cdef uint8_t *end
    cdef const uint8_t *p
    cdef size_t length, offset
    cdef uint8_t tag
    produced[0] = 0
    if r.bad or declared > cap:
        return FF_BAD_INFLATE
    end = dst + declared
    while r.at < r.end:
        tag = r.at[0]
        r.at += 1
        if tag & 3 == 0:
            length = tag >> 2
            if length >= 60:
                p = ff_take(&r, length - 59)
                if p == NULL:
                    return FF_BAD_INFLATE
                offset = length - 59         # bytes of length that followed, little-endian
                length = 0
                while offset > 0:
                    offset -= 1
                    length = length << 8 | p[offset]
            length += 1
            if length <= 16 and ff_left(&r) >= SLOP and <size_t>(end - at) >= SLOP:
                memcpy(at, r.at, 16)         # most literals are short: one fixed-size move
                r.at += length
            else:
                p = ff_take(&r, length)
                if p == NULL or length > <size_t>(end - at):
                    return FF_BAD_INFLATE
                memcpy(at, p, length)
            at += length
        elif tag & 3 == 1:
            p = ff_take(&r, 1)
            if p == NULL or copy_back(dst, &at, end, <size_t>(tag >> 5) << 8 | p[0], 4 + (tag >> 2 & 7)) != FF_OK:
                return FF_BAD_INFLATE
        elif tag & 3 == 2:
            p = ff_take(&r, 2)
            if p == NULL or copy_back(dst, &at, end, <size_t>p[1] << 8 | p[0], 1 + (tag >> 2)) != FF_OK:
                return FF_BAD_INFLATE
        else:
            p = ff_take(&r, 4)
            if p == NULL or copy_back(dst, &at, end, ff_load32_le(p), 1 + (tag >> 2)) != FF_OK:
                return FF_BAD_INFLATE
    if at != end:
        return FF_BAD_INFLATE
    produced[0] = <size_t>declared
    return FF_OK


cdef int ff_snappy_inflate(const uint8_t *src, size_t n, uint8_t *dst, size_t size) noexcept nogil:
    """Inflate into dst[0:size], where `size` is what ff_snappy_size said. Anything but exactly that many bytes is an error."""
    cdef ff_reader r = ff_reader_of(src, n)
    cdef const uint8_t *chunk
    cdef size_t length, produced
    cdef size_t at = 0
    cdef int status
    if not is_framed(src, n):
        status = inflate_raw(src, n, dst, size, &produced)
        return FF_BAD_INFLATE if status == FF_OK and produced != size else status
    while True:
        status = next_chunk(&r, &chunk, &length)
        if status == FF_PARTIAL:
            return FF_OK if at == size else FF_BAD_INFLATE
        if status != FF_OK:
            return status
        status = inflate_raw(chunk, length, dst + at, size - at, &produced)
        if status != FF_OK:
            return status
        at += produced
