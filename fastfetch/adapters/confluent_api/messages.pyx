"""Message: what confluent-kafka's consumers return, made from the rows of a block without a detour through Record.

Its accessors are methods, and their numbers are librdkafka's: 1 create time, 2 log append time, 0 no timestamp. Whatever is
unknown is None.

A message made from a block holds nothing but bytes and strings, so the garbage collector need not look at it and is not told of
it: with ten thousand of them in a list that is what a collection costs. It is told when somebody puts objects of his own in.

Ahead hands such messages out one at a time, for poll(), which has no time for a list.
"""

cimport cython
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.object cimport PyObject_Size
from cpython.ref cimport Py_INCREF

from fastfetch.kernels.wire cimport *
from fastfetch.records.block cimport RecordBlock
from fastfetch.records.record cimport PLACEHOLDER_EVERY, place, span

from time import monotonic


cdef extern from "Python.h":
    void PyObject_GC_Track(object)
    void PyObject_GC_UnTrack(object)
    bint PyObject_GC_IsTracked(object)


@cython.freelist(4096)
cdef class Message:
    """One message, or an error in the place of one: look at error() first, for then value() is its text.

    Made by a consumer. Making one is for tests: everything is a keyword and optional, `timestamp` a tuple of type and milliseconds.
    """

    def __init__(self, topic=None, partition=None, offset=None, key=None, value=None, headers=None, error=None, timestamp=None,
                 latency=None, leader_epoch=None, delivery_count=None):
        if timestamp is not None and not (isinstance(timestamp, tuple) and len(timestamp) == 2):
            raise TypeError("timestamp must be a tuple of (int, int)")
        self._topic = topic
        self._partition = -1 if partition is None else partition
        self._offset = -1 if offset is None else offset
        self._key = key
        self._value = value
        self._headers = headers
        self._error = error
        if timestamp is not None:
            self._timestamp_type, self._timestamp = timestamp
        self._latency = -1.0 if latency is None else latency
        self._leader_epoch = -1 if leader_epoch is None else leader_epoch
        self._delivery_count = -1 if delivery_count is None else delivery_count

    def topic(self):
        """The topic's name."""
        return self._topic

    def partition(self):
        """The partition's number."""
        return None if self._partition < 0 else self._partition

    def offset(self):
        """The message's offset; of an error, where the partition stands."""
        return None if self._offset < 0 else self._offset

    def key(self):
        """bytes, or None."""
        return self._key

    def value(self):
        """bytes, or None; of an error, its text."""
        return self._value

    def deserialized_key(self):
        """The same as key(), where a deserializer may have put its result."""
        return self._key

    def deserialized_value(self):
        """The same as value()."""
        return self._value

    def headers(self):
        """List of (str, bytes | None), in order, duplicates kept; None if there are none."""
        return self._headers

    def error(self):
        """None for a message, else the KafkaError it stands for."""
        return self._error

    def timestamp(self):
        """(type, ms since 1970): TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME or TIMESTAMP_NOT_AVAILABLE."""
        return self._timestamp_type, self._timestamp

    def latency(self):
        """None: producers know it."""
        return None if self._latency < 0 else self._latency

    def leader_epoch(self):
        """Leader epoch of the message's batch, None if unknown."""
        return None if self._leader_epoch < 0 else self._leader_epoch

    def delivery_count(self):
        """None: share consumers know it."""
        return None if self._delivery_count < 0 else self._delivery_count

    cdef void hold(self):
        """Somebody's own object comes in, and may lead back here."""
        if not PyObject_GC_IsTracked(self):
            PyObject_GC_Track(self)

    def set_topic(self, topic):
        """Replace the topic."""
        self.hold()
        self._topic = topic

    def set_key(self, key):
        """Replace the key by anything, such as what a deserializer made of it."""
        self.hold()
        self._key = key

    def set_value(self, value):
        """Replace the value by anything."""
        self.hold()
        self._value = value

    def set_headers(self, headers):
        """Replace the headers."""
        self.hold()
        self._headers = headers

    def set_error(self, error):
        """Replace the error; None makes it a message."""
        self.hold()
        self._error = error

    def __len__(self):
        """Size of the value, 0 for null."""
        return 0 if self._value is None else PyObject_Size(self._value)

    def __eq__(self, other):
        if not isinstance(other, Message):
            return NotImplemented
        return self.fields() == (<Message>other).fields()

    __hash__ = None

    cdef tuple fields(self):
        return (self._topic, self._partition, self._offset, self._key, self._value, self._headers, self._error,
                (self._timestamp_type, self._timestamp), self._latency, self._leader_epoch, self._delivery_count)

    def __reduce__(self):
        return type(self), self.fields()

    def __repr__(self):
        # Sizes only: messages end up in logs through repr, and their bytes may be secret.
        what = f"error={self._error!r}" if self._error is not None else "no value" if self._value is None else f"{len(self)} bytes"
        return f"<Message {self._topic} [{self._partition}] at {self._offset}: {what}>"


def messages(RecordBlock block) -> list:
    """All records of a block as Message objects, each owning its bytes."""
    cdef ff_columns *c = &block.columns
    cdef list out = PyList_New(block.n)
    cdef Py_ssize_t i, row
    cdef Py_ssize_t made = 0
    cdef Message message
    for i in range(block.n):
        row = block.first + i
        message = Message.__new__(Message)
        PyObject_GC_UnTrack(message)
        message._topic = block.topic
        message._partition = block.partition
        message._offset = c.offsets[row]
        message._leader_epoch = c.leader_epochs[row]
        message._latency = message._delivery_count = -1
        message._key = span(block.origin, c.key_starts[row], c.key_lengths[row])
        message._value = span(block.origin, c.value_starts[row], c.value_lengths[row])
        if c.header_counts[row] != 0:
            message._headers = block.row_headers(row)
        if c.timestamp_types[row] >= 0:
            message._timestamp_type = c.timestamp_types[row] + 1
            message._timestamp = c.timestamps[row]
        Py_INCREF(message)
        PyList_SET_ITEM(out, i, message)
        made += c.value_lengths[row] + 192
        if made > PLACEHOLDER_EVERY:
            place(max(c.value_lengths[row], 0))
            made = 0
    return out


@cython.final
cdef class Ahead:
    """Messages of the rows at the head of a chunk, handed out one by one as long as each is the next one, for some time.

    Not for the last row of a block: that one takes the block along. step() and undo() are one call of C code each, so that neither a
    signal handler nor another thread comes in between; whoever moves positions calls clear() first, then takes the client's lock.

    readahead   keeps count of what is handed out
    consumed    the last message handed out of each partition
    """

    def __init__(self, readahead, dict consumed):
        self.readahead = readahead
        self.consumed = consumed
        self.messages = []

    def fill(self, state, chunk, list made):
        """These come next: messages of the rows of a chunk's first block, from the first one that was not handed out. The client's
        lock is held by the caller."""
        self.clear()
        self.state = state
        self.ticket = state.ticket
        self.chunk = chunk
        self.row = chunk.row
        self.position = state.position
        self.epoch = state.leader_epoch
        self.before = self.consumed.get(state)
        self.messages = made

    def renew(self, double seconds):
        """Go on for so long without a look at what else is due."""
        self.until = monotonic() + seconds

    cpdef clear(self):
        """Hand out none of these any more."""
        self.readahead.records_handed_out += self.at
        self.at = 0
        self.messages = []
        self.state = self.chunk = self.before = None
        self.has_stepped = False

    cpdef bint is_next(self):
        """Does one of these come next?"""
        if self.at >= len(self.messages):
            return False
        state = self.state
        chunks = state.chunks
        return (state.ticket == self.ticket and not state.paused and len(chunks) > 0 and chunks[0] is self.chunk
                and self.chunk.row == self.row + self.at)

    def step(self):
        """The next message; None if there is none, or another is next since a seek, a pause, a rebalance, or if the time is up.

        Position, leader epoch and what was consumed move with it.
        """
        cdef Message message
        self.has_stepped = False
        if not self.is_next() or monotonic() >= self.until:
            return None
        state = self.state
        message = <Message>self.messages[self.at]
        self.at += 1
        self.has_stepped = True
        self.chunk.row = self.row + self.at
        state.position = message._offset + 1
        state.leader_epoch = None if message._leader_epoch < 0 else message._leader_epoch
        self.consumed[state] = message
        return message

    def undo(self):
        """The message of the last step(), if there was one, did not get to the caller: it is the next one again."""
        cdef Message message
        if not self.has_stepped:
            return
        self.has_stepped = False
        state = self.state
        self.at -= 1
        self.chunk.row = self.row + self.at
        if self.at > 0:
            message = <Message>self.messages[self.at - 1]
            state.position = message._offset + 1
            state.leader_epoch = None if message._leader_epoch < 0 else message._leader_epoch
            self.consumed[state] = message
        else:
            state.position, state.leader_epoch = self.position, self.epoch
            if self.before is None:
                self.consumed.pop(state, None)
            else:
                self.consumed[state] = self.before
