"""pytest-benchmark over the parts around decode(): `python -m pytest bench/test_parts.py --benchmark-only`.

Each group is one piece of work, done by fastfetch's part and by what one would use without it: a peer's, a package's, plain
Python's. All do the same, which is asserted. For ratios: `--benchmark-columns=median,iqr --benchmark-sort=mean`; `extra_info`
has ns per unit. FASTFETCH_BENCH_BYTES makes the data smaller: a smoke test, not a figure.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import struct
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import cramjam
import lz4.frame
import pytest
import zstandard
from aiokafka.protocol.commit import OffsetCommitRequest_v3
from aiokafka.protocol.fetch import FetchResponse_v11
from aiokafka.protocol.metadata import MetadataResponse_v5
from aiokafka.record import MemoryRecords
from aiokafka.structs import ConsumerRecord as AiokafkaRecord
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

import fastfetch
from bench.corpus import corpus
from bench.topics import write_segments
from bench.wire import Wire
from fastfetch.adapters.data_objects import data_objects_of
from fastfetch.adapters.rows import append_named_tuples
from fastfetch.benchmark.decoders import peer_decoder
from fastfetch.kernels.codecs import providers, use_provider
from fastfetch.protocol import decode_response, encode_request, encode_response, tables

with warnings.catch_warnings():
    # It reads its schemas in a way that Python 3.11 calls deprecated; under pytest a warning is an error here.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka.consumer.fetcher import ConsumerRecord as KafkaRecord
    from kafka.protocol.consumer import FetchResponse, OffsetCommitRequest
    from kafka.protocol.metadata import MetadataResponse

BYTES = int(os.environ.get("FASTFETCH_BENCH_BYTES", "1048576"))  # of records in a response, before compression
TOPIC_BYTES = 16 * BYTES
HEADER = struct.Struct(">qiibIhiqqqhii")  # of a batch of format 2

Contenders = dict[str, Callable[[], Any]]


def taken(benchmark: Any, group: str, work: Callable[[], Any], units: int, rounds: int) -> Any:
    """Time it and return what it returned."""
    benchmark.group = group
    result = benchmark.pedantic(work, rounds=rounds, warmup_rounds=1)
    if benchmark.stats is not None:  # None with --benchmark-disable
        benchmark.extra_info["ns_per_unit"] = round(benchmark.stats.stats.median / units * 1e9, 1)
    return result


# -------------------------------------------------------------------------------------------------------------- fetch responses

SHAPES = {"1 partition": (1, BYTES), "100 partitions": (100, BYTES // 100), "1000 without records": (1000, 0)}


def fetch_frame(shape: str) -> bytes:
    count, size = SHAPES[shape]
    partitions = [
        {"partition_index": n, "high_watermark": 10 * n, "records": bytes(size), "aborted_transactions": []} for n in range(count)
    ]
    return encode_response(tables.FETCH, 11, 42, {"responses": [{"topic": "orders", "partitions": partitions}]})[4:]


FETCHES: dict[str, Callable[[bytes], list[tuple[int, int]]]] = {
    "fastfetch": lambda f: [(p.high_watermark, len(p.records or b"")) for p in fastfetch.read_fetch_response(f, 11).partitions],
    "field tables": lambda f: [
        (p["high_watermark"], len(p["records"])) for p in decode_response(tables.FETCH, 11, f)[1]["responses"][0]["partitions"]
    ],
    "aiokafka": lambda f: [(p[2], len(p[7])) for p in FetchResponse_v11.decode(io.BytesIO(f[4:])).topics[0][1]],
    "kafka-python": lambda f: [
        (p.high_watermark, len(p.records)) for p in FetchResponse.decode(f[4:], version=11).responses[0].partitions
    ],
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reader", FETCHES)
def test_fetch_response(benchmark: Any, shape: str, reader: str) -> None:
    frame = fetch_frame(shape)
    count, size = SHAPES[shape]
    found = taken(benchmark, f"fetch response: {shape}", lambda: FETCHES[reader](frame), count, 30)
    assert found == [(10 * n, size) for n in range(count)]


# --------------------------------------------------------------------------------------------------------------------- protocol

PARTITIONS = 1000


def metadata_frame() -> bytes:
    nodes = {"replica_nodes": [1, 2, 3], "isr_nodes": [1, 2, 3], "offline_replicas": []}
    partitions = [{"error_code": 0, "partition_index": n, "leader_id": n % 3, **nodes} for n in range(PARTITIONS)]
    brokers = [{"node_id": n, "host": f"broker-{n}.example", "port": 9092, "rack": None} for n in range(3)]
    topic = {"error_code": 0, "name": "orders", "is_internal": False, "partitions": partitions}
    return encode_response(
        tables.METADATA, 5, 42, {"brokers": brokers, "cluster_id": "c", "controller_id": 1, "topics": [topic]}
    )[4:]


def commit_body() -> dict[str, Any]:
    partitions = [{"partition_index": n, "committed_offset": 1000 * n, "committed_metadata": ""} for n in range(PARTITIONS)]
    return {
        "group_id": "g",
        "generation_id_or_member_epoch": 1,
        "member_id": "m",
        "topics": [{"name": "orders", "partitions": partitions}],
    }


def kio_metadata(frame: bytes) -> list[int]:
    entity, _ = entity_reader(load_response_schema(tables.METADATA.key, 5))(frame, 4)
    return [partition.leader_id for partition in entity.topics[0].partitions]


METADATA: dict[str, Callable[[bytes], list[int]]] = {
    "fastfetch": lambda f: [p["leader_id"] for p in decode_response(tables.METADATA, 5, f)[1]["topics"][0]["partitions"]],
    "aiokafka": lambda f: [p[2] for p in MetadataResponse_v5.decode(io.BytesIO(f[4:])).topics[0][3]],
    "kafka-python": lambda f: [p.leader_id for p in MetadataResponse.decode(f[4:], version=5).topics[0].partitions],
    "kio": kio_metadata,
}


@pytest.mark.parametrize("reader", METADATA)
def test_reading_metadata(benchmark: Any, reader: str) -> None:
    frame = metadata_frame()
    found = taken(benchmark, f"read Metadata v5, {PARTITIONS} partitions", lambda: METADATA[reader](frame), PARTITIONS, 10)
    assert found == [n % 3 for n in range(PARTITIONS)]


def commit_writers() -> Contenders:
    """From the values of a program to bytes, the request's own object included."""
    rows = commit_body()["topics"][0]["partitions"]
    schema = load_request_schema(tables.OFFSET_COMMIT.key, 3)
    ours = encode_request(tables.OFFSET_COMMIT, 3, 1, "c", commit_body())
    entity, _ = entity_reader(schema)(ours, 4 + 8 + 3)
    write = entity_writer(schema)

    def with_kio() -> bytes:  # its object is not made here: it takes ten times as long as writing it
        out = io.BytesIO()
        write(out, entity)
        return out.getvalue()

    def with_aiokafka() -> bytes:
        partitions = [(row["partition_index"], row["committed_offset"], row["committed_metadata"]) for row in rows]
        return bytes(OffsetCommitRequest_v3("g", 1, "m", -1, [("orders", partitions)]).encode())

    def with_kafka_python() -> bytes:
        topic, partition = (
            OffsetCommitRequest.OffsetCommitRequestTopic,
            OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition,
        )
        partitions = [
            partition(partition_index=r["partition_index"], committed_offset=r["committed_offset"], committed_metadata="")
            for r in rows
        ]
        request = OffsetCommitRequest(
            group_id="g", generation_id_or_member_epoch=1, member_id="m", topics=[topic(name="orders", partitions=partitions)]
        )
        return bytes(request.encode(version=3))

    return {
        "fastfetch": lambda: encode_request(tables.OFFSET_COMMIT, 3, 1, "c", commit_body())[4 + 8 + 3 :],
        "aiokafka": with_aiokafka,
        "kafka-python": with_kafka_python,
        "kio": with_kio,
    }


@pytest.mark.parametrize("writer", ["fastfetch", "aiokafka", "kafka-python", "kio"])
def test_writing_commits(benchmark: Any, writer: str) -> None:
    work = commit_writers()[writer]
    body = taken(benchmark, f"write OffsetCommit v3, {PARTITIONS} partitions", work, PARTITIONS, 10)
    wanted = encode_request(tables.OFFSET_COMMIT, 3, 1, "c", commit_body())[4 + 8 + 3 :]
    assert body == wanted


# ---------------------------------------------------------------------------------------------------------------- batch headers


def headers_by_struct(data: bytes) -> list[tuple[int, int]]:
    """What is left without a decoder, and unchecked."""
    out, at = [], 0
    while at < len(data):
        fields = HEADER.unpack_from(data, at)
        out.append((fields[0], fields[12]))
        at += 12 + fields[1]
    return out


def headers_by_aiokafka(data: bytes) -> list[tuple[int, int]]:
    records, out = MemoryRecords(data), []
    while records.has_next():
        batch = records.next_batch()
        if not batch.validate_crc():
            raise RuntimeError("CRC")
        out.append((batch.base_offset, batch.next_offset - batch.base_offset))
    return out


HEADERS: dict[str, Callable[[bytes], list[tuple[int, int]]]] = {
    "fastfetch": lambda data: [(h.base_offset, h.count or 0) for h in fastfetch.batches(data)],
    "fastfetch, CRCs unchecked": lambda data: [(h.base_offset, h.count or 0) for h in fastfetch.batches(data, check_crcs=False)],
    "struct, CRCs unchecked": headers_by_struct,
    "aiokafka": headers_by_aiokafka,
}


@pytest.mark.parametrize("name", ["json-none", "json-lz4", "json-lz4-5"])
@pytest.mark.parametrize("reader", HEADERS)
def test_batch_headers(benchmark: Any, name: str, reader: str) -> None:
    data = corpus(name, BYTES)
    found = taken(benchmark, f"batch headers: {data.title}", lambda: HEADERS[reader](data.data), data.batches, 20)
    assert found == headers_by_struct(data.data)


# ----------------------------------------------------------------------------------------------------------------------- codecs


def payloads(data: bytes) -> list[bytes]:
    out, at = [], 0
    while at < len(data):
        size = 12 + HEADER.unpack_from(data, at)[1]
        out.append(data[at + HEADER.size : at + size])
        at += size
    return out


def snappy_java(payload: bytes) -> bytes:
    """The Java framing, block by block."""
    out, at = [], 16
    while at < len(payload):
        size = int.from_bytes(payload[at : at + 4], "big")
        out.append(bytes(cramjam.snappy.decompress_raw(payload[at + 4 : at + 4 + size])))
        at += 4 + size
    return b"".join(out)


PACKAGES: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda payload: bytes(cramjam.gzip.decompress(payload)),
    "snappy": snappy_java,
    "lz4": lz4.frame.decompress,
    "zstd": lambda payload: zstandard.ZstdDecompressor().decompressobj().decompress(payload),
}


@pytest.mark.parametrize("codec", PACKAGES)
@pytest.mark.parametrize("by", ["decode, system library", "decode, Python package", "package, inflating alone"])
def test_codecs(benchmark: Any, codec: str, by: str) -> None:
    """Inflating is most of decoding: what each provider makes of it, beside a package that does nothing else."""
    data = corpus(f"json-{codec}", BYTES)
    pieces = payloads(data.data)
    inflate = PACKAGES[codec]
    if by == "package, inflating alone":
        inflated = taken(benchmark, f"codec: {codec}", lambda: sum(len(inflate(piece)) for piece in pieces), data.records, 20)
        assert inflated == data.inflated
        return
    use_provider("system" if "system" in by else "python")
    try:
        if codec != "snappy" and providers()[codec][0] == "missing":
            pytest.skip(f"no {by.removeprefix('decode, ')} for {codec} on this machine")
        decoded = taken(benchmark, f"codec: {codec}", lambda: fastfetch.decode(data.data), data.records, 20)
    finally:
        use_provider("auto")
    assert decoded.stats.inflated_bytes == data.inflated


# ---------------------------------------------------------------------------------------------------------------------- objects


def by_python(blocks: list[fastfetch.RecordBlock]) -> list[bytes]:
    """Values out of columns without values()."""
    out = []
    for block in blocks:
        data, starts, lengths = block.data, block.value_starts.tolist(), block.value_lengths.tolist()
        out += [bytes(data[start : start + length]) for start, length in zip(starts, lengths, strict=True)]
    return out


VALUES: dict[str, Callable[[list[fastfetch.RecordBlock]], list[Any]]] = {
    "values()": lambda blocks: [value for block in blocks for value in block.values()],
    "slices in Python": by_python,
    "records()": lambda blocks: [record.value for block in blocks for record in block.records()],
}


@pytest.mark.parametrize("name", ["json-none", "100b-lz4"])
@pytest.mark.parametrize("way", VALUES)
def test_values_out_of_columns(benchmark: Any, name: str, way: str) -> None:
    data = corpus(name, BYTES)
    blocks = fastfetch.decode(data.data).blocks
    found = taken(benchmark, f"values out of columns: {data.title}", lambda: VALUES[way](blocks), data.records, 20)
    assert found == by_python(blocks)


# ------------------------------------------------------------------------------------------------ records of other clients' kinds


def kafka_rows(data: bytes) -> int:
    out: list[Any] = []
    for block in fastfetch.decode(data).blocks:
        append_named_tuples(out, block, KafkaRecord, "orders")
    return len(out)


def kafka_by_records(data: bytes) -> int:
    """The same rows from Records, in Python."""
    return len([
        KafkaRecord("orders", 0, r.leader_epoch, r.offset, r.timestamp, r.timestamp_type, r.key, r.value, r.headers, None,
                    r.serialized_key_size, r.serialized_value_size, -1)
        for r in fastfetch.decode(data)
    ])  # fmt: skip


def aiokafka_by_records(data: bytes) -> int:
    return len([
        AiokafkaRecord("orders", 0, r.offset, r.timestamp, r.timestamp_type, r.key, r.value, None, r.serialized_key_size,
                       r.serialized_value_size, tuple(r.headers))
        for r in fastfetch.decode(data)
    ])  # fmt: skip


ROWS: dict[str, dict[str, Callable[[bytes], int]]] = {
    "kafka-python": {
        "rows in C": kafka_rows,
        "from Records, in Python": kafka_by_records,
        "the peer's decoder": peer_decoder("kafka-python"),
    },
    "aiokafka": {
        "rows in C": lambda data: len(data_objects_of(fastfetch.decode(data).blocks, AiokafkaRecord)),
        "from Records, in Python": aiokafka_by_records,
        "the peer's decoder": peer_decoder("aiokafka"),
    },
}


@pytest.mark.parametrize("name", ["json-none", "json-lz4"])
@pytest.mark.parametrize(("peer", "way"), [(peer, way) for peer, ways in ROWS.items() for way in ways])
def test_records_of_another_client(benchmark: Any, name: str, peer: str, way: str) -> None:
    """Bytes to the records that a peer's consumer hands out. Its own decoder stops before that, at records of a batch."""
    data = corpus(name, BYTES)
    rounds = 3 if (peer, way) == ("kafka-python", "the peer's decoder") else 10
    assert (
        taken(benchmark, f"{peer}'s records: {data.title}", lambda: ROWS[peer][way](data.data), data.records, rounds)
        == data.records
    )


# ------------------------------------------------------------------------------------------------------------------- end to end


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """(servers, records) of a topic that `kfetch serve` gives out, in a process of its own."""
    data = corpus("json-lz4", BYTES)
    folder = tmp_path_factory.mktemp("data") / "orders-0"
    folder.mkdir()
    batches = [bytes(data.data[h.byte_pos : h.byte_pos + h.size]) for h in fastfetch.batches(data.data)]
    records = write_segments(folder, batches * (TOPIC_BYTES // BYTES))
    command = [sys.executable, "-m", "fastfetch", "serve", str(folder), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent) as server:
        try:
            assert server.stdout is not None
            yield json.loads(server.stdout.readline())["bootstrap_servers"], records
        finally:
            server.terminate()


def read_wire(servers: str, records: int) -> int:
    with Wire(servers, "orders", 1 << 20) as wire:
        return wire.learn(records)[1]


def read_blocks(servers: str, records: int) -> int:
    found = 0
    with fastfetch.Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([fastfetch.TopicPartition("orders", 0)])
        while found < records:
            found += sum(map(len, consumer.poll_blocks(timeout_ms=1000)))
    return found


def read_poll(servers: str, records: int) -> int:
    found = 0
    with fastfetch.Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([fastfetch.TopicPartition("orders", 0)])
        while found < records:
            found += sum(map(len, consumer.poll(timeout_ms=1000).values()))
    return found


def read_aiokafka(servers: str, records: int) -> int:
    async def read() -> int:
        found = 0
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign([aiokafka.TopicPartition("orders", 0)])
            while found < records:
                found += sum(map(len, (await consumer.getmany(timeout_ms=1000)).values()))
        finally:
            await consumer.stop()
        return found

    return asyncio.run(read())


def read_kafka_python(servers: str, records: int) -> int:
    found = 0
    consumer = kafka.KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest", max_poll_records=5000)
    try:
        consumer.assign([kafka.TopicPartition("orders", 0)])
        while found < records:
            found += sum(map(len, consumer.poll(timeout_ms=1000).values()))
    finally:
        consumer.close()
    return found


READERS: dict[str, Callable[[str, int], int]] = {
    "the wire alone": read_wire,
    "fastfetch, blocks": read_blocks,
    "fastfetch, poll": read_poll,
    "aiokafka": read_aiokafka,
    "kafka-python": read_kafka_python,
}


@pytest.mark.parametrize("reader", READERS)
def test_end_to_end(benchmark: Any, served: tuple[str, int], reader: str) -> None:
    """From connecting to the last record. What serves is Python: the wire alone tells what is left for a client to lose."""
    servers, records = served
    assert taken(benchmark, "end to end: JSON ~200 B, lz4", lambda: READERS[reader](servers, records), records, 3) == records
