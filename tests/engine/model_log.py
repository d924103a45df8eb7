"""The truth a model cluster holds: logs that are appended to, cut by unclean elections, trimmed by retention and made anew.

Every record's value says where it was written ("incarnation.epoch.offset"), and what was ever written stays known by the epoch
that wrote it, also after the log was cut. So whatever a client delivers can be judged: which history of the log holds it, and
what of that history lies between two offsets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from fastfetch.testing import control_batch, encode_batch


@dataclass(eq=False)
class Transaction:
    producer_id: int
    first_offset: int
    committed: bool | None = None  # None: still open
    marker_offset: int = -1


@dataclass(eq=False)
class Batch:
    base: int
    last: int
    epoch: int
    data: bytes
    offsets: tuple[int, ...] = ()  # of its records; compaction leaves gaps
    transaction: Transaction | None = None
    is_bad: bool = False  # damaged in the log

    def is_visible(self, committed_only: bool) -> bool:
        return not (committed_only and self.transaction is not None and not self.transaction.committed)


@dataclass(eq=False)
class Log:
    """One partition of one incarnation of a topic. `end` is the leader's log end and high watermark."""

    incarnation: int = 1
    start: int = 0
    end: int = 0
    epoch: int = 5
    batches: list[Batch] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.epochs = [(self.epoch, self.end)]  # (epoch, its first offset): what brokers answer OffsetForLeaderEpoch from
        self.written: dict[int, list[Batch]] = {self.epoch: []}
        # By epoch: the histories it stands on. In (epoch, first offset), offsets below the next entry's were written by it.
        self.histories: dict[int, tuple[tuple[int, int], ...]] = {self.epoch: ((self.epoch, self.end),)}

    # --- writing --------------------------------------------------------------------------------------------------------

    def append(
        self,
        count: int,
        *,
        size: int = 10,
        hole: int = 0,
        tail: int = 0,
        codec: str = "none",
        transaction: Transaction | None = None,
    ) -> Batch:
        """`count` records; compaction took `hole` offsets in the middle and `tail` at the end. No record: an empty batch."""
        base = self.end
        deltas = [d if d < count // 2 else d + hole for d in range(count)]
        span = count + (hole if count > 1 else 0) + tail
        offsets = tuple(base + d for d in deltas)
        values = [f"{self.incarnation}.{self.epoch}.{o}".encode().ljust(size) for o in offsets]
        data = encode_batch(
            values,
            base_offset=base,
            deltas=deltas,
            last_offset_delta=max(span, 1) - 1,
            codec=codec,
            leader_epoch=self.epoch,
            producer_id=-1 if transaction is None else transaction.producer_id,
            transactional=transaction is not None,
        )
        return self._add(Batch(base, base + max(span, 1) - 1, self.epoch, data, offsets, transaction))

    def begin(self, producer_id: int, count: int) -> Transaction:
        transaction = Transaction(producer_id, self.end)
        self.transactions.append(transaction)
        self.append(count, transaction=transaction)
        return transaction

    def finish(self, transaction: Transaction, committed: bool) -> None:
        transaction.committed, transaction.marker_offset = committed, self.end
        data = control_batch(
            "commit" if committed else "abort", producer_id=transaction.producer_id, base_offset=self.end, leader_epoch=self.epoch
        )
        self._add(Batch(self.end, self.end, self.epoch, data))

    def damage(self, batch: Batch) -> None:
        """Flip a bit of a batch in the log, for good."""
        batch.data = damaged(batch.data)
        batch.is_bad = True

    def _add(self, batch: Batch) -> Batch:
        self.batches.append(batch)
        self.written[self.epoch].append(batch)
        self.end = batch.last + 1
        return batch

    def elect(self, cut_to: int | None = None) -> None:
        """A new leader, epoch + 1. An unclean one lacks what stands at `cut_to` and above."""
        if cut_to is not None:
            self.batches = [batch for batch in self.batches if batch.last < cut_to]
            self.end = self.batches[-1].last + 1 if self.batches else self.start
        self.epoch += 1
        # As brokers do: an epoch that wrote nothing leaves no trace.
        self.epochs = [*((e, s) for e, s in self.epochs if s < self.end), (self.epoch, self.end)]
        self.histories[self.epoch] = tuple(self.epochs)
        self.written[self.epoch] = []
        if cut_to is not None:
            # The coordinator writes markers until they stay; an open transaction may have lost all it wrote.
            end = self.end
            self.transactions = [t for t in self.transactions if t.first_offset < end]
            for transaction in self.transactions:
                if transaction.committed is not None and transaction.marker_offset >= end:
                    self.finish(transaction, transaction.committed)

    def retain_from(self, offset: int) -> None:
        """Retention or DeleteRecords: `offset` may lie within a batch, which then stays. Open transactions stay whole."""
        self.start = max(self.start, min(offset, self.stable_end))
        self.batches = [batch for batch in self.batches if batch.last >= self.start]

    # --- what brokers say -----------------------------------------------------------------------------------------------

    @property
    def stable_end(self) -> int:
        return min((t.first_offset for t in self.transactions if t.committed is None), default=self.end)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as a broker answers OffsetForLeaderEpoch; (-1, -1): undefined."""
        if epoch == self.epoch:
            return epoch, self.end
        later = [start for e, start in self.epochs if e > epoch]
        if epoch > self.epoch or not later:
            return -1, -1
        earlier = [e for e, _ in self.epochs if e <= epoch]
        return (earlier[-1] if earlier else epoch), later[0]

    def read(self, offset: int, upper: int) -> Iterator[Batch]:
        for batch in self.batches[bisect_left(self.batches, offset, key=lambda b: b.last) :] if self.batches else ():
            if batch.base >= upper:
                return
            yield batch

    def aborted(self, first: int, upper: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions that may reach into [first, upper)."""
        return [
            (t.producer_id, t.first_offset)
            for t in self.transactions
            if t.committed is False and t.first_offset < upper and t.marker_offset >= first
        ]

    # --- what is right --------------------------------------------------------------------------------------------------

    def history(self, epoch: int, first: int, upper: int) -> Iterator[Batch]:
        """Batches with offsets in [first, upper) in the log as `epoch` knew or wrote it, whatever was cut later."""
        entries = self.histories[epoch]
        for index, (e, start) in enumerate(entries):
            end = entries[index + 1][1] if index + 1 < len(entries) else upper
            if end <= first or start >= upper:
                continue
            batches = self.written[e]
            for batch in batches[bisect_left(batches, first, key=lambda b: b.last) :]:
                if batch.base >= min(upper, end):
                    break
                yield batch

    def descends(self, epoch: int, ancestor: int, at: int) -> bool:
        """Does `epoch`'s log hold the record below offset `at`, which `ancestor` wrote?"""
        entries = self.histories[epoch]
        ends = [start for _, start in entries[1:]]
        return epoch == ancestor or any(e == ancestor and at <= end for (e, _), end in zip(entries, ends, strict=False))


def damaged(data: bytes) -> bytes:
    """One bit of the last byte flipped: the CRC covers it."""
    return data[:-1] + bytes([data[-1] ^ 1])
