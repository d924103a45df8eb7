"""kafka-python over fastfetch's decoder: one line, and its consumers deliver the same records several times as fast.

    import fastfetch.adapters.kafka_python

    fastfetch.adapters.kafka_python.install()

kafka-python offers no place to plug a decoder in. But its fetcher looks up two names whenever it has fetched a partition's bytes,
and install() rebinds those: kafka.consumer.fetcher.MemoryRecords, which cuts bytes into batches, and Fetcher.PartitionRecords,
which makes consumer records of them (seam "reader"); or the first alone (seam "decoder"). Everything else is kafka-python's own:
connections, groups, positions, commits, deserializers, metrics, configuration. Consumers that exist change at their next fetch.

Records, exceptions and deserializers are kafka-python's. What bytes are good and which are corrupt is fastfetch's decision.
"""

from __future__ import annotations

import inspect
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Literal

import kafka  # type: ignore[import-untyped, unused-ignore]
import kafka.errors  # type: ignore[import-untyped, unused-ignore]
from kafka.consumer import fetcher  # type: ignore[import-untyped, unused-ignore]
from kafka.serializer import Deserializer  # type: ignore[import-untyped, unused-ignore]

from fastfetch.adapters import memory_records
from fastfetch.adapters.memory_records import MAX_BATCH_BYTES
from fastfetch.adapters.rebinding import Installed, Rebinding, check_parameters
from fastfetch.adapters.rows import FIELDS, OfData, append_named_tuples, serialized_bytes
from fastfetch.errors import CorruptBatchError, UsageError
from fastfetch.records.ahead import promised_end
from fastfetch.records.block import RecordBlock
from fastfetch.records.decode import decode

__all__ = ["KNOWN_VERSIONS", "MemoryRecords", "PartitionRecords", "install", "uninstall"]

KNOWN_VERSIONS = ("2.2", "2.3", "3.0")

# Inflated at a time, of one partition's bytes: a megabyte may hold gigabytes.
_DECODE_BYTES = 8 << 20

_Deserialize = Callable[[str, list[tuple[str, bytes | None]], bytes | None], Any]


class MemoryRecords(memory_records.MemoryRecords):
    """Stands for kafka.record.MemoryRecords."""

    # Releases before 2.2 have other names: install() is to say that, not an AttributeError here.
    corrupt = getattr(kafka.errors, "CorruptRecordError", kafka.errors.KafkaError)
    unsupported_codec = kafka.errors.UnsupportedCodecError

    __slots__ = ()


class PartitionRecords:
    """Stands for kafka.consumer.fetcher.Fetcher.PartitionRecords: consumer records of one partition's part of a fetch response.

    next_fetch_offset, leader_epoch, bytes_read and records_read tell of the records that take() has returned, not of what is
    decoded. Records below fetch_offset count for nothing.
    """

    def __init__(
        self,
        fetch_offset: int,
        tp: Any,
        records: Any,
        key_deserializer: Any = None,
        value_deserializer: Any = None,
        check_crcs: bool = True,
        isolation_level: int = 0,
        aborted_transactions: Iterable[Any] | None = None,
        metric_aggregator: Any = None,
        on_drain: Callable[[Any], object] = lambda part: None,
    ) -> None:
        self.fetch_offset = fetch_offset
        self.topic_partition = tp
        self.leader_epoch = -1
        self.next_fetch_offset = fetch_offset
        self.bytes_read = 0
        self.records_read = 0
        self.isolation_level = isolation_level
        self.check_crcs = check_crcs
        self.metric_aggregator = metric_aggregator
        self.on_drain = on_drain
        self._key = _caller(key_deserializer)
        self._value = _caller(value_deserializer)
        self._aborted = [_aborted(item) for item in aborted_transactions or ()]
        # Not next_batch(): the fetcher asks this object for has_next() once more.
        self._data: memoryview | None = records.unread()
        self._blocks: deque[RecordBlock] = deque()
        self._position = fetch_offset  # where decoding goes on
        self._decoded = False
        self._error: CorruptBatchError | None = None
        self._raise_next: Exception | None = None

    def __bool__(self) -> bool:
        """False once drained."""
        return self._data is not None

    def drain(self) -> None:
        """Let go of the bytes, and tell the metrics and the fetcher. Does nothing the second time."""
        if self._data is None:
            return
        self._data = None
        self._blocks.clear()
        self._raise_next = None
        if self.metric_aggregator:
            self.metric_aggregator.record(self.topic_partition, self.bytes_read, self.records_read)
        self.on_drain(self)

    def take(self, n: int | None = None) -> list[Any]:
        """The next n records, or all. Fewer than n: the data has run out, or what comes next raises.

        Raises what the deserializers raise, and CorruptRecordError or UnsupportedCodecError, from fastfetch's own error, where a
        batch can't be read: in the call after the one that returned the records before.
        """
        if self._raise_next is not None:
            error, self._raise_next = self._raise_next, None
            raise error
        out: list[Any] = []
        try:
            self._fill(out, n)
        except Exception as error:
            if not out:
                raise
            self._raise_next = error
        return out

    @property
    def record_iterator(self) -> Iterator[Any] | None:
        """The records not taken yet, one by one; None once drained."""
        return None if self._data is None else chain.from_iterable(iter(lambda: self.take(1), []))

    def _fill(self, out: list[Any], n: int | None) -> None:
        while self._data is not None and (n is None or len(out) < n):
            if self._blocks:
                self._take_rows(out, n)
            elif self._error is not None:
                raise MemoryRecords.error(self._error) from self._error
            elif not self._decoded:
                self._decode(self._data)
            else:
                # Not before more is asked for than there was: the fetcher compares this with the position after the last record.
                self.next_fetch_offset = self._position
                epoch = promised_end(self._data, self.fetch_offset)[1]
                if epoch >= 0:
                    self.leader_epoch = epoch  # of the last batch, which need not have had a record for us
                self.drain()

    def _take_rows(self, out: list[Any], n: int | None) -> None:
        block = self._blocks[0]
        before = len(out)
        rows = block if n is None or len(block) <= n - before else block[: n - before]
        try:
            append_named_tuples(out, rows, fetcher.ConsumerRecord, self.topic_partition.topic, self._key, self._value)
        finally:
            made = len(out) - before
            if made:
                self.next_fetch_offset = out[-1].offset + 1
                self.leader_epoch = out[-1].leader_epoch
                self.records_read += made
                self.bytes_read += serialized_bytes(block[:made])
            if made == len(block):
                self._blocks.popleft()
            else:
                self._blocks[0] = block[made:]

    def _decode(self, data: memoryview) -> None:
        """The next blocks. Always from the whole data: which transactions are aborted is counted from its beginning."""
        tp = self.topic_partition
        committed = self.isolation_level == 1
        decoded = decode(
            data,
            position=self._position,
            isolation="read_committed" if committed else "read_uncommitted",
            aborted=self._aborted,
            check_crcs=self.check_crcs,
            max_batch_bytes=MAX_BATCH_BYTES,
            max_bytes=_DECODE_BYTES,
            topic=tp.topic,
            partition=tp.partition,
        )
        self._blocks.extend(decoded.blocks)
        self._error = decoded.error
        self._position = decoded.next_offset if decoded.next_offset is not None else self._position
        rest = data[decoded.consumed :]
        self._decoded = len(rest) < 12 or 12 + int.from_bytes(rest[8:12], "big") > len(rest)  # no whole batch is left


def _aborted(transaction: Any) -> tuple[int, int]:
    """Producer id and first offset: a named pair of the response's in 3.x, a plain one in 2.x."""
    producer_id = getattr(transaction, "producer_id", None)
    return tuple(transaction) if producer_id is None else (producer_id, transaction.first_offset)


def _caller(deserializer: Any) -> _Deserialize | None:
    """A deserializer as f(topic, headers, data), by the rules of the installed version."""
    if not deserializer:
        return None
    if not _TAKES_HEADERS:  # 2.x, which takes functions, too
        if not isinstance(deserializer, Deserializer):
            return OfData(deserializer)
        return lambda topic, headers, data: deserializer.deserialize(topic, data)
    if type(deserializer) is fetcher.DeserializeWrapper:  # of a function
        return None if deserializer.fn is None else OfData(deserializer.fn)

    def deserialize(topic: str, headers: list[tuple[str, bytes | None]], data: bytes | None) -> Any:
        try:
            return deserializer.deserialize(topic, headers, data)
        except TypeError:
            warnings.warn("deserializer does not implement deserialize(topic, headers, data)", DeprecationWarning, stacklevel=2)
            return deserializer.deserialize(topic, data)

    return deserialize


_TAKES_HEADERS = "headers" in inspect.signature(Deserializer.deserialize).parameters


def _names(seam: str) -> Iterator[tuple[Any, str, Any]]:
    """What install() rebinds; raises UsageError if kafka-python does not look as the known versions do."""
    client = f"kafka-python {kafka.__version__}"
    expected = list(inspect.signature(PartitionRecords).parameters)
    try:
        check_parameters(client, fetcher.Fetcher.PartitionRecords, expected)
        check_parameters(client, fetcher.MemoryRecords, ["bytes_data"])
        called = fetcher.Fetcher._parse_fetched_data.__code__.co_names
        fields = fetcher.ConsumerRecord._fields
    except (AttributeError, ValueError) as error:
        raise UsageError(f"{client} has not the shape this adapter knows ({error}). Nothing was changed") from error
    if not {"MemoryRecords", "PartitionRecords"} <= set(called):
        raise UsageError(f"{client}: its fetcher does not look up MemoryRecords and PartitionRecords. Nothing was changed")
    if fields != FIELDS:
        raise UsageError(
            f"{client}: ConsumerRecord has the fields {', '.join(fields)}, not {', '.join(FIELDS)}. Nothing was changed"
        )
    yield fetcher, "MemoryRecords", MemoryRecords
    if seam == "reader":
        yield fetcher.Fetcher, "PartitionRecords", PartitionRecords


_rebinding = Rebinding("kafka-python", KNOWN_VERSIONS, ("reader", "decoder"), _names)


def install(seam: Literal["reader", "decoder"] = "reader") -> Installed:
    """Let kafka-python's consumers of this process read through fastfetch, those that exist and those to come.

    seam  "reader": fetched bytes into consumer records, the whole way. "decoder": into batches and records, of which
          kafka-python's own code makes consumer records; less is replaced, and less is gained

    Returns a context manager that uninstalls on leaving; it need not be used. The same seam twice changes nothing. Raises
    UsageError, and changes nothing, for a version of kafka-python it does not know, for one that does not have the shape of its
    version, and if the other seam is installed.
    """
    return _rebinding.install(seam, kafka.__version__)


def uninstall() -> None:
    """Put back what install() replaced; does nothing if nothing is installed. Records that a consumer has decoded already are
    still handed out by fastfetch. Raises UsageError, and changes nothing, if somebody else has rebound the same names since."""
    _rebinding.uninstall()
