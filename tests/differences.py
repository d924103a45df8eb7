"""Where fastfetch differs from the Java client on purpose: what it does instead, and why. One list, kept honest by a test.

Each entry names lines of the golden data (fnmatch patterns) and overrides what Java gives in the views it applies to: `offsets`
as [first, count] runs, `next_offset`, `error` as our kind or None. Without `at` an entry applies to every view of the line. An
entry that changes nothing is stale and fails the test.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from golden import View

__all__ = ["DIFFERENCES", "HEADER_KEYS", "Difference", "expected"]

SAME: Any = object()


@dataclass(frozen=True)
class Difference:
    """One deliberate difference."""

    names: tuple[str, ...]
    why: str
    offsets: Any = SAME
    next_offset: Any = SAME
    error: Any = SAME
    at: str = field(default="*", kw_only=True)  # of the view's name

    def applies(self, name: str, view: View) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.names) and fnmatchcase(view.name, self.at)

    def apply(self, view: View) -> View:
        return view.gives(
            view.offsets if self.offsets is SAME else self.offsets,
            view.next_offset if self.next_offset is SAME else self.next_offset,
            view.error if self.error is SAME else self.error,
        )


def differs(names: str, why: str, *, at: str = "*", **ours: Any) -> Difference:
    return Difference(tuple(names.split()), " ".join(why.split()), at=at, **ours)


def refused(names: str, why: str, kind: str, *, count: int = 0) -> tuple[Difference, Difference]:
    """Java reads on; here the batch is an error after `count` records. Positions are known only where something was delivered."""
    offsets = [[0, count]] if count else []
    return (
        differs(names, why, at="read", offsets=offsets, next_offset=count or None, error=kind),
        differs(names, why, at="fetch*", offsets=offsets, next_offset=count, error=kind),
    )


DIFFERENCES: tuple[Difference, ...] = (
    # ---------------------------------------------------------------- position
    differs(
        "v0-*-compacted-first v1-*-compacted-first",
        """A position never goes back: the only batch lies wholly below the one asked for. (The cleaner rewrote a set of formats 0
        or 1 as a format 2 batch without its removed tail.) Java moves to that batch's end.""",
        at="fetch from 105*", next_offset=105,
    ),
    differs(
        "v2-*-txn-interleaved",
        "Records below the position are never delivered. Java sets its position back to the end of each aborted batch it skips.",
        at="fetch from 3, read_committed", offsets=[[3, 2], [7, 2], [10, 2]],
    ),
    differs(
        "v2-*-txn-interleaved",
        "As above.",
        at="fetch from 8, read_committed", offsets=[[8, 1], [10, 2]],
    ),
    differs(
        "bad/batches-out-of-order",
        "decode() keeps offsets strictly increasing; Java's record reader alone does not, its consumer does.",
        at="read", offsets=[[10, 5]],
    ),
    differs("bad/batches-overlap", "As above.", at="read", offsets=[[0, 6]]),
    differs("bad/batch-twice", "As above.", at="read", offsets=[[0, 4]]),
    differs("bad/offset-deltas-equal", "As above; counted in stats.records_dropped.", at="read", offsets=[[0, 1]]),
    differs("bad/offset-deltas-decrease", "As above; counted in stats.records_dropped.", at="read", offsets=[[1, 1]]),
    differs("bad/v0-wrapper-inner-decreasing", "As above.", at="read", offsets=[[2, 1]]),
    differs(
        "bad/v1-wrapper-inner-decreasing",
        "As above, and the position goes past the record delivered at 4; Java goes back to 3 and reads it again.",
        offsets=[[4, 1]], next_offset=5,
    ),
    differs(
        "bad/v0-wrapper-offset-below",
        "The position goes past the last record delivered; Java goes back to the wrapper's offset + 1 and reads 2 again.",
        next_offset=3,
    ),
    # ---------------------------------------------------------------- header
    differs("bad/length-2147483647", "64-bit arithmetic makes it an ordinary partial tail; Java's overflows.", error=None),
    *refused("bad/base-offset-negative", "No offset is negative; Java delivers -1 and calls the end 3.", "offset"),
    differs(
        "bad/base-offset-overflow",
        "The batch's end does not fit 64 bits; Java's position wraps to negative.",
        at="read", offsets=[], next_offset=None, error="offset",
    ),
    differs("bad/base-offset-overflow", "As above.", at="fetch*", offsets=[], next_offset=2**63 - 2, error="offset"),
    *refused("bad/last-offset-delta-negative", "Java delivers offset 0 and stays at 0, for ever.", "offset"),
    # ---------------------------------------------------------------- counts and offset deltas
    *refused("bad/count-zero-with-records bad/gzip-count-zero-with-records", "Java passes over four records silently.", "count"),
    differs(
        "bad/count-max",
        "A count that the bytes cannot hold is refused before anything is sized by it; Java walks until the bytes end.",
        offsets=[], next_offset=0, error="count",
    ),
    *refused(
        "bad/last-offset-delta-too-small",
        "A record past the batch's declared last offset: Java delivers it and then moves its position back below it.",
        "record", count=2,
    ),
    *refused("bad/offset-delta-above-last bad/offset-delta-max bad/gzip-offset-delta-above-last", "As above.", "record", count=1),
    differs(
        "bad/offset-delta-negative",
        "Offset 4 in a batch from 5 on.",
        at="read", offsets=[], next_offset=None, error="record",
    ),
    differs("bad/offset-delta-negative", "As above.", at="fetch*", offsets=[], next_offset=4, error="record"),
    *refused("bad/varlong-10th-byte-large", "A varint with bits beyond its type is refused; Java drops the bits.", "record"),
    # ---------------------------------------------------------------- codecs
    differs(
        """bad/gzip-bad-crc32 bad/gzip-bad-size bad/gzip-cut-trailer bad/gzip-no-trailer bad/gzip-cut-data bad/lz4-no-end-mark
        bad/lz4-content-check-missing bad/zstd-not-last-block bad/zstd-checksum-missing bad/zstd-trailing-garbage
        bad/zstd-trailing-3-bytes""",
        """A batch is inflated whole before its records are walked: no record of a payload that turns out broken is delivered.
        Java inflates as it goes, and its consumer delivers some.""",
        offsets=[], next_offset=0, error="inflate",
    ),
    *refused("bad/gzip-reserved-flag", "Reserved gzip flags are refused (RFC 1952, 2.3.1.2); Java does not look.", "inflate"),
    differs(
        "bad/gzip-count-zero-empty",
        "An empty batch is empty whatever its codec bits say, and no decompressor is asked; Java's fails on no input.",
        offsets=[], next_offset=4, error=None,
    ),
    differs(
        "bad/lz4-dependent-blocks",
        "Linked blocks are legal in LZ4 frames; Java refuses them.",
        offsets=[[0, 4]], next_offset=4, error=None,
    ),
    *refused(
        "bad/lz4-content-check-bad",
        "LZ4 content checksums are compared (decode(lz4_content_checksum=False) is as lax as Java).",
        "inflate",
    ),
    *refused(
        "bad/lz4-content-size-too-large bad/lz4-content-size-too-small",
        "A declared size has to be true; Java ignores it.",
        "inflate",
    ),
    *refused("bad/lz4-content-size-2^62", "A declared size is compared with the cap first; Java ignores it.", "too_large"),
    differs(
        "bad/lz4-zero-length-stored-block",
        "An empty stored block is no end mark (only a zero word is); Java takes it for one.",
        offsets=[[0, 4]], next_offset=4, error=None,
    ),
    differs(
        "bad/lz4-two-frames bad/lz4-skippable-frame-first",
        "Frames may follow each other, and skippable ones are skipped; Java reads one frame.",
        offsets=[[0, 4]], next_offset=4, error=None,
    ),
    # ---------------------------------------------------------------- formats 0 and 1
    *refused(
        "bad/v?-wrapper-other-magic bad/v?-wrapper-mixed-magic",
        "Inner messages have the wrapper's magic: what an offset means depends on it.",
        "record",
    ),
    differs(
        "bad/v?-wrapper-inner-crc-wrong",
        "The wrapper's CRC covers the inner bytes; inner CRCs are not compared. Nor does Java's reader, but its consumer does.",
        at="fetch*", offsets=[[0, 3]], next_offset=3, error=None,
    ),
    *refused(
        "bad/v?-wrapper-inner-cut bad/v?-wrapper-inner-trailing",
        """A wrapper's set ends exactly at its last message; Java hands out the whole ones of a cut set, and numbers those of
        format 1 wrongly, because they count back from the last.""",
        "record",
    ),
)  # fmt: skip

# Header keys that are no UTF-8 are delivered without loss (surrogateescape); Java puts U+FFFD in their place.
HEADER_KEYS = ("bad/header-key-not-utf8", "bad/header-key-surrogate", "bad/gzip-header-key-not-utf8")


def expected(name: str, view: View) -> View:
    """What fastfetch has to give for a view of Java's."""
    for difference in DIFFERENCES:
        if difference.applies(name, view):
            view = difference.apply(view)
    return view
