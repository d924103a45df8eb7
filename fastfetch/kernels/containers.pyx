"""LZ4 frames (lz4_Frame_format.md) and Zstandard frames (RFC 8878), walked without inflating.

Why by hand: the frame says how large its content is, or can be; which blocks it has; whether it wants a dictionary or a window larger
than Kafka allows; and whether it is whole. All of that is known before memory is asked for, and it is the same for both codec providers.
The blocks of an LZ4 frame go to the provider one by one; a zstd frame goes to it whole.
"""

from libc.string cimport memcpy

from fastfetch.kernels.wire cimport *


cdef enum:
    ZSTD_WINDOW_MAX = 1 << 27            # brokers and the Java client refuse more
    ZSTD_BLOCK_MAX = 1 << 17
    LZ4_EXPANSION = 255                  # one more length byte is at most 255 more bytes out

cdef uint32_t ZSTD_MAGIC = 0xFD2FB528
cdef uint32_t LZ4_MAGIC = 0x184D2204
cdef uint32_t SKIPPABLE_MAGIC = 0x184D2A50   # and the 15 numbers after it, in both formats


cdef inline uint64_t take_le(ff_reader *r, int width) noexcept nogil:
    cdef const uint8_t *p = ff_take(r, <size_t>width)
    cdef uint64_t v = 0
    if p != NULL:
        while width > 0:
            width -= 1
            v = v << 8 | p[width]
    return v


cdef inline bint take_skippable(ff_reader *r) noexcept nogil:
    """Pass over a skippable frame if one is next. A length beyond the bytes makes the reader bad."""
    if ff_left(r) < 4 or ff_load32_le(r.at) & <uint32_t>0xFFFFFFF0 != SKIPPABLE_MAGIC:
        return False
    ff_take(r, 4)
    ff_take(r, <size_t>take_le(r, 4))
    return True


# ------------------------------------------------------------------------------------------------ Zstandard

cdef int zstd_frame(ff_reader *r, ff_extent *extent) noexcept nogil:
    cdef uint8_t descriptor, b
    cdef uint64_t window = 0
    cdef uint64_t content = 0
    cdef uint64_t most = 0
    cdef uint64_t least = 0
    cdef uint64_t block_max
    cdef bint single, declared
    cdef int width
    cdef uint32_t block, size
    descriptor = <uint8_t>take_le(r, 1)
    single = (descriptor & 0x20) != 0
    if descriptor & 0x08:                # reserved
        return FF_BAD_INFLATE
    if not single:
        b = <uint8_t>take_le(r, 1)
        window = <uint64_t>1 << (10 + (b >> 3))
        window += (window >> 3) * (b & 7)
    width = 1 << (descriptor & 3) >> 1   # dictionary id: 0, 1, 2 or 4 bytes
    if take_le(r, width) != 0:           # no dictionaries in Kafka
        return FF_BAD_INFLATE
    width = descriptor >> 6              # content size: 1 << flag bytes, but flag 0 means one byte or none
    declared = single or width != 0
    if declared:
        content = take_le(r, 1 << width)
        if width == 1:
            content += 256
    if single:
        window = content
    if r.bad:
        return FF_BAD_INFLATE
    # A single segment has no window of its own: its declared size is compared with the caller's limit instead.
    if window > ZSTD_WINDOW_MAX and not single:
        return FF_BAD_INFLATE
    block_max = window if window < ZSTD_BLOCK_MAX else ZSTD_BLOCK_MAX
    while True:
        block = <uint32_t>take_le(r, 3)
        size = block >> 3
        if (block >> 1 & 3) == 1:        # run of one byte
            ff_take(r, 1)
            most += size
            least += size
        elif (block >> 1 & 3) == 3:
            return FF_BAD_INFLATE
        else:
            ff_take(r, size)
            if (block >> 1 & 3) == 0:    # stored
                most += size
                least += size
            else:
                most += block_max
        if r.bad or size > block_max:    # Block_Maximum_Size: the window's, at most 128 KiB
            return FF_BAD_INFLATE
        if block & 1:
            break
    if descriptor & 0x04:
        ff_take(r, 4)                    # content checksum, compared by the library
    if r.bad:
        return FF_BAD_INFLATE
    if declared:
        most = content
        least = content
    else:
        extent.declared = 0
    extent.most += most                  # < n / 3 blocks of 2^17 each, or one declared number
    extent.least += least
    if extent.most < most or extent.least < least:   # only declared numbers can wrap
        extent.most = extent.least = <uint64_t>-1
    return FF_OK


cdef int ff_zstd_extent(const uint8_t *src, size_t n, ff_extent *extent) noexcept nogil:
    """All frames of a payload. Bytes that are no frame are an error, also behind the last one (as in Java)."""
    cdef ff_reader r = ff_reader_of(src, n)
    cdef int status
    extent.most = extent.least = 0
    extent.declared = 1
    extent.unused = 0
    if n == 0:
        return FF_BAD_INFLATE
    while ff_left(&r) > 0:
        if take_skippable(&r):
            if r.bad:
                return FF_BAD_INFLATE
            continue
        if ff_left(&r) < 4 or ff_load32_le(r.at) != ZSTD_MAGIC:
            return FF_BAD_INFLATE
        ff_take(&r, 4)
        status = zstd_frame(&r, extent)
        if status != FF_OK:
            return status
    return FF_OK


# ------------------------------------------------------------------------------------------------------ LZ4

ctypedef struct lz4_frame:
    size_t block_max
    uint64_t content_size
    bint has_content_size
    bint content_checksum
    bint block_checksum
    bint linked


cdef inline uint32_t rotate(uint32_t v, int by) noexcept nogil:
    return v << by | v >> (32 - by)


cdef uint32_t ff_xxh32(const uint8_t *data, size_t n) noexcept nogil:
    """xxHash32 with seed 0, from its public description: the checksum of LZ4 frames."""
    cdef uint32_t p1 = 2654435761, p2 = 2246822519, p3 = 3266489917, p4 = 668265263, p5 = 374761393
    cdef uint32_t a = p1 + p2
    cdef uint32_t b = p2
    cdef uint32_t c = 0
    cdef uint32_t d = 0 - p1
    cdef uint32_t h = p5
    cdef const uint8_t *p = data
    cdef size_t left = n
    if n >= 16:
        while left >= 16:
            a = rotate(a + ff_load32_le(p) * p2, 13) * p1
            b = rotate(b + ff_load32_le(p + 4) * p2, 13) * p1
            c = rotate(c + ff_load32_le(p + 8) * p2, 13) * p1
            d = rotate(d + ff_load32_le(p + 12) * p2, 13) * p1
            p += 16
            left -= 16
        h = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18)
    h += <uint32_t>n
    while left >= 4:
        h = rotate(h + ff_load32_le(p) * p3, 17) * p4
        p += 4
        left -= 4
    while left > 0:
        h = rotate(h + p[0] * p5, 11) * p1
        p += 1
        left -= 1
    h = (h ^ h >> 15) * p2
    h = (h ^ h >> 13) * p3
    return h ^ h >> 16


cdef int lz4_header(ff_reader *r, lz4_frame *frame, bint check) noexcept nogil:
    """Descriptor behind the magic. `check`: compare the header checksum (magic-0 wrappers carry a wrong one, KAFKA-3160)."""
    cdef const uint8_t *start = r.at
    cdef uint8_t flags = <uint8_t>take_le(r, 1)
    cdef uint8_t sizes = <uint8_t>take_le(r, 1)
    if r.bad or flags >> 6 != 1 or flags & 0x02 or flags & 0x01 or sizes & 0x8F or sizes >> 4 < 4:
        return FF_BAD_INFLATE            # version, reserved bits, a dictionary, or a block size that does not exist
    frame.block_max = <size_t>1 << (8 + 2 * (sizes >> 4))
    frame.linked = not flags & 0x20
    frame.block_checksum = (flags & 0x10) != 0
    frame.has_content_size = (flags & 0x08) != 0
    frame.content_checksum = (flags & 0x04) != 0
    frame.content_size = take_le(r, 8) if frame.has_content_size else 0
    if ff_take(r, 1) == NULL:
        return FF_BAD_INFLATE
    if check and (ff_xxh32(start, <size_t>(r.at - start) - 1) >> 8 & 0xFF) != (r.at - 1)[0]:
        return FF_BAD_INFLATE
    return FF_OK


cdef inline int lz4_block(ff_reader *r, const lz4_frame *frame, const uint8_t **block, size_t *n, bint *stored) noexcept nogil:
    """The next block; FF_PARTIAL at the end mark."""
    cdef uint32_t word = <uint32_t>take_le(r, 4)
    if r.bad:
        return FF_BAD_INFLATE
    if word == 0:
        return FF_PARTIAL
    stored[0] = word >> 31 != 0
    n[0] = word & <uint32_t>0x7FFFFFFF
    if n[0] > frame.block_max:
        return FF_BAD_INFLATE
    block[0] = ff_take(r, n[0])
    return FF_BAD_INFLATE if r.bad else FF_OK


cdef inline bint lz4_next_frame(ff_reader *r) noexcept nogil:
    """Is another frame next? Passes over its magic, and over skippable frames before it."""
    while take_skippable(r):
        pass
    if r.bad or ff_left(r) < 4 or ff_load32_le(r.at) != LZ4_MAGIC:
        return False
    ff_take(r, 4)
    return True


cdef int ff_lz4_extent(const uint8_t *src, size_t n, ff_extent *extent) noexcept nogil:
    """All frames of a payload. What is behind the last frame and no frame is ignored and counted (brokers store it)."""
    cdef ff_reader r = ff_reader_of(src, n)
    cdef lz4_frame frame
    cdef const uint8_t *block
    cdef const uint8_t *behind
    cdef size_t size
    cdef bint stored = False
    cdef uint64_t most, least
    cdef int status
    extent.most = extent.least = 0
    extent.declared = 1
    extent.unused = 0
    if not lz4_next_frame(&r):
        return FF_BAD_INFLATE
    while True:
        if lz4_header(&r, &frame, False) != FF_OK:
            return FF_BAD_INFLATE
        most = least = 0
        while True:
            status = lz4_block(&r, &frame, &block, &size, &stored)
            if status != FF_OK:
                break
            if frame.block_checksum:
                ff_take(&r, 4)
            if stored:
                most += size
                least += size
            else:
                most += size * LZ4_EXPANSION if size * LZ4_EXPANSION < frame.block_max else frame.block_max
        if status != FF_PARTIAL:
            return status
        if frame.content_checksum:
            ff_take(&r, 4)
        if r.bad:
            return FF_BAD_INFLATE
        if frame.has_content_size:
            # A size that is not true is found while inflating; `most` keeps to what the blocks can hold.
            least = frame.content_size
        else:
            extent.declared = 0
        extent.most += most
        extent.least = extent.least + least if extent.least + least >= least else <uint64_t>-1
        behind = r.at
        if not lz4_next_frame(&r):
            extent.unused = <int64_t>(src + n - behind)
            return FF_OK


cdef int64_t ff_lz4_inflate(ff_codecs *codecs, const uint8_t *src, size_t n, uint8_t *dst, size_t cap, bint old_header) noexcept nogil:
    """Inflate all frames of a payload that ff_lz4_extent has walked. Returns the size, or -ff_status."""
    cdef ff_reader r = ff_reader_of(src, n)
    cdef lz4_frame frame
    cdef const uint8_t *block
    cdef const uint8_t *checksum
    cdef size_t size
    cdef size_t at = 0                       # bytes in dst
    cdef size_t start, room
    cdef bint stored = False
    cdef int64_t got
    cdef int status
    while lz4_next_frame(&r):
        if lz4_header(&r, &frame, not old_header) != FF_OK:
            return -FF_BAD_INFLATE
        start = at
        while True:
            status = lz4_block(&r, &frame, &block, &size, &stored)
            if status != FF_OK:
                break
            if frame.block_checksum:
                checksum = ff_take(&r, 4)
                if checksum == NULL or ff_load32_le(checksum) != ff_xxh32(block, size):
                    return -FF_BAD_INFLATE
            room = cap - at if cap - at < frame.block_max else frame.block_max
            if stored:
                if size > room:
                    return -FF_OUTPUT_FULL
                memcpy(dst + at, block, size)
                at += size
                continue
            got = codecs.lz4_block(codecs, block, size, dst + at, room, at - start if frame.linked else 0)
            if got < 0:
                # A block that wants more than its frame allows is bad; one that wants more than our room may need a larger buffer.
                return -FF_OUTPUT_FULL if got == -FF_BAD_INFLATE and room < frame.block_max else got
            at += <size_t>got
        if status != FF_PARTIAL:
            return -FF_BAD_INFLATE
        if frame.content_checksum:
            checksum = ff_take(&r, 4)
            if checksum == NULL or codecs.lz4_content_checksum and ff_load32_le(checksum) != ff_xxh32(dst + start, at - start):
                return -FF_BAD_INFLATE
        if frame.has_content_size and frame.content_size != at - start:
            return -FF_BAD_INFLATE
    return <int64_t>at
