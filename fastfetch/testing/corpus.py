"""The records that `kfetch demo` reads: orders as JSON, about 200 bytes each, one partition a codec, the same in every run.

A few thousand distinct records are encoded for each partition, and the broker repeats them at new offsets: millions of records
cost a fraction of a second to make and no memory to keep.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

from .batches import DEFAULT_TIMESTAMP, Row, encode_batch
from .broker import Broker

__all__ = ["DEMO_CODECS", "DemoPartition", "demo_corpus", "order_rows"]

DEMO_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

_PLACES = ("Amsterdam", "Bergen", "Coimbra", "Dresden", "Évora", "Firenze", "Gdańsk", "Helsinki", "Innsbruck", "Jyväskylä")
_ITEMS = ("kettle", "lantern", "notebook", "compass", "raincoat", "bicycle bell", "chess set", "teapot", "globe", "inkwell")
_STATES = ("placed", "paid", "packed", "sent", "delivered", "returned")


@dataclass(frozen=True, slots=True)
class DemoPartition:
    """What one partition of the demo topic holds.

    size        bytes on the wire
    inflated    bytes of its records sections after decompression
    """

    partition: int
    codec: str
    records: int
    batches: int
    size: int
    inflated: int


def order_rows(count: int, *, seed: int = 0, timestamp: int = DEFAULT_TIMESTAMP) -> list[Row]:
    """`count` orders, deterministic: key = customer, value = JSON, a header on one in ten, one in a hundred a tombstone."""
    draw = random.Random(seed)
    rows = []
    for i in range(count):
        customer = draw.randrange(10_000)
        value = {
            "order": f"{draw.randrange(1 << 48):012x}",
            "customer": customer,
            "place": draw.choice(_PLACES),
            "item": draw.choice(_ITEMS),
            "count": draw.randrange(1, 9),
            "price": draw.randrange(100, 99_999) / 100,
            "state": draw.choice(_STATES),
            "note": draw.choice(("", "", "leave at the door", "gift wrapping, please", "call before delivery")),
            "at": timestamp + i * 37,
        }
        body = None if i % 100 == 99 else json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        headers = [("trace", draw.randbytes(8)), ("source", b"demo")] if i % 10 == 0 else []
        rows.append(Row(b"customer-%05d" % customer, body, timestamp + i * 37, headers))
    return rows


def demo_corpus(
    broker: Broker,
    topic: str = "orders",
    *,
    records: int = 3_000_000,
    codecs: tuple[str, ...] = DEMO_CODECS,
    distinct: int = 4_000,
    records_per_batch: int = 80,
) -> list[DemoPartition]:
    """Make `topic` with one partition a codec, and about `records` records in all (each partition a multiple of `distinct`).

    distinct            records that differ, in each partition; the rest repeats them
    records_per_batch   80 give batches of about 16 KiB before compression, what producers with default settings send under load
    """
    broker.create_topic(topic, len(codecs))
    repeats = max(1, round(records / len(codecs) / distinct))
    made = []
    for partition, codec in enumerate(codecs):
        rows = order_rows(distinct, seed=partition)
        runs = [rows[at : at + records_per_batch] for at in range(0, distinct, records_per_batch)]
        plain, template, at = 0, [], 0
        for run in runs:
            plain += len(encode_batch(run)) - 61
            template.append(encode_batch(run, base_offset=at, codec=codec))
            at += len(run)
        data = b"".join(template)
        broker.generate(topic, partition, data, repeats)
        made.append(
            DemoPartition(partition, codec, distinct * repeats, len(runs) * repeats, len(data) * repeats, plain * repeats)
        )
    return made
