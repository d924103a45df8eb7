"""Memory for arenas and slabs.

Fresh pages cost more than the decoding that fills them, so a few buffers are kept for the next call. A buffer comes back only when
nothing refers to it (its Buffer object died), and nobody sees more of it than was produced. What is kept never exceeds what was once
in use at the same time, nor KEEP_BYTES.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stddef cimport size_t
from libc.stdlib cimport free, malloc, realloc

cdef extern from *:
    """
    #if defined(FASTFETCH_POISON)
    #include <string.h>
    #define FF_POISON(p, n) memset((p), 0xA5, (n))
    #else
    #define FF_POISON(p, n) ((void)(p), (void)(n))
    #endif
    """
    void FF_POISON(void *p, size_t n) noexcept nogil


cdef enum:
    KEEP = 64                        # buffers
    KEEP_BYTES = 128 << 20
    KEEP_FROM = 16 << 10             # smaller ones: malloc is as good

cdef void *kept[KEEP]
cdef size_t kept_capacity[KEEP]
cdef size_t kept_bytes = 0
cdef int kept_count = 0
cdef cython.pymutex lock


cdef void *ff_buffer_take(size_t wanted, size_t *capacity) noexcept nogil:
    """At least `wanted` bytes (capacity says how many), or NULL. Contents are undefined."""
    global kept_bytes, kept_count
    cdef int i
    cdef int best = -1
    cdef void *buffer = NULL
    if wanted >= KEEP_FROM:
        lock.acquire()
        for i in range(kept_count):
            # The smallest that fits, and none so large that a small block would pin a large buffer.
            if kept_capacity[i] >= wanted and kept_capacity[i] // 4 <= wanted and (best < 0 or kept_capacity[i] < kept_capacity[best]):
                best = i
        if best >= 0:
            buffer = kept[best]
            capacity[0] = kept_capacity[best]
            kept_bytes -= kept_capacity[best]
            kept_count -= 1
            kept[best] = kept[kept_count]
            kept_capacity[best] = kept_capacity[kept_count]
        lock.release()
        if buffer != NULL:
            return buffer
    buffer = malloc(wanted if wanted > 0 else 1)
    capacity[0] = wanted if buffer != NULL else 0
    return buffer


cdef void *ff_buffer_grow(void *buffer, size_t wanted, size_t *capacity) noexcept nogil:
    """Room for `wanted` bytes, contents kept. NULL: no memory, and the old buffer still stands."""
    cdef size_t size = capacity[0] + capacity[0] // 2
    if size < wanted:
        size = wanted
    buffer = realloc(buffer, size)
    if buffer != NULL:
        capacity[0] = size
    return buffer


cdef void ff_buffer_give(void *buffer, size_t capacity) noexcept nogil:
    """Nobody refers to the buffer any more."""
    global kept_bytes, kept_count
    cdef bint keep = False
    if buffer == NULL:
        return
    if capacity >= KEEP_FROM:
        FF_POISON(buffer, capacity)
        lock.acquire()
        if kept_count < KEEP and kept_bytes + capacity <= KEEP_BYTES:
            kept[kept_count] = buffer
            kept_capacity[kept_count] = capacity
            kept_count += 1
            kept_bytes += capacity
            keep = True
        lock.release()
    if not keep:
        free(buffer)


def trim() -> int:
    """Give all kept buffers back to the system. Returns the bytes freed."""
    global kept_bytes, kept_count
    cdef size_t freed
    lock.acquire()
    freed = kept_bytes
    while kept_count > 0:
        kept_count -= 1
        free(kept[kept_count])
    kept_bytes = 0
    lock.release()
    return freed


@cython.final
cdef class Buffer:
    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, <Py_ssize_t>self.used, 1, flags)

    def __dealloc__(self):
        ff_buffer_give(self.data, self.capacity)


cdef Buffer own_buffer(void *data, size_t used, size_t capacity):
    """Make `data` (from ff_buffer_take) the property of a new object."""
    cdef Buffer buffer = Buffer.__new__(Buffer)
    buffer.data = data
    buffer.used = used
    buffer.capacity = capacity
    return buffer
