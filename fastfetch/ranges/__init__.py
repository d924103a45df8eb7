"""Reads that end: what to read, decided once, and the records of it, wherever they are read.

    ranges = fastfetch.plan("127.0.0.1:9092", "orders", start="earliest", max_records=1_000_000)
    for block in fastfetch.read(ranges[0]):
        ...

`plan` looks offsets up and fixes both ends of every partition, so that what is produced afterwards belongs to the next plan.
`read` ends by its *position*, which passes transaction markers, aborted records and the holes of compaction; loops that wait for
the last record's offset never end where one of those comes last.

Ranges are cut at offsets, wherever those fall. A fetch that begins inside a batch brings the whole batch, and what lies outside
the range is left out: over all ranges of a plan each record comes exactly once.
"""

from __future__ import annotations

from .planning import plan
from .reading import read
from .values import OffsetRange, Timestamp

__all__ = ["OffsetRange", "Timestamp", "plan", "read"]
