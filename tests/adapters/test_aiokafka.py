"""The aiokafka adapter against aiokafka itself: the same bytes, asked for in the same way, by their classes and by ours."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.errors import CorruptRecordException, UnsupportedCodecError
from hypothesis import given, settings
from hypothesis import strategies as st

import fastfetch.adapters.aiokafka as adapter
from fastfetch import batches
from fastfetch.errors import CorruptBatchError, UsageError
from fastfetch.testing import control_batch, encode_batch, message_set, patch, repair_crc

TP = TopicPartition("orders", 3)
SEAMS = ("reader", "decoder")
ONE = "getone"
ALL = "getall"


def brief(value: Any) -> str:
    """A test id: calls that repeat are told once."""
    if isinstance(value, list):
        return "-".join(f"{call}x{len(list(group))}" for call, group in itertools.groupby(value))
    return str(value)


class Reading:
    """What a fetcher does with the bytes of one partition: a FetchResult of them, with a real assignment behind it."""

    def __init__(
        self,
        data: bytes | None,
        offset: int = 0,
        aborted: list[tuple[int, int]] | None = None,
        *,
        committed: bool = False,
        check_crcs: bool = True,
        key: Any = None,
        value: Any = None,
    ) -> None:
        subscriptions = SubscriptionState()
        subscriptions.assign_from_user({TP})
        self.state = subscriptions.subscription.assignment.state_value(TP)
        self.state.reset_to(offset)
        self.records = fetcher.MemoryRecords(data)
        self.result: Any = None
        if self.records.has_next():
            reader = fetcher.PartitionRecords(TP, self.records, aborted, offset, key, value, check_crcs, int(committed))
            self.result = fetcher.FetchResult(
                TP, assignment=subscriptions.subscription.assignment, partition_records=reader, backoff=0
            )

    def call(self, call: Any) -> Any:
        """getone, getall, a number (getall of so many), pause, resume or ("seek", offset)."""
        if call in ("pause", "resume"):
            return getattr(self.state, call)()
        if isinstance(call, tuple):
            return self.state.seek(call[1])
        if call == ONE:
            return self.result.getone()
        return self.result.getall(None if call == ALL else call)

    def trace(self, calls: Any) -> list[Any]:
        """What each call gave or raised, where the position then was, and whether more was to be had; until that was not so."""
        events = []
        for call in calls:
            if self.result is None or not self.result.has_more():
                break
            try:
                got = self.call(call)
            except Exception as error:
                got = type(error)
            events.append((call, got, self.state.position, self.result.has_more()))
        return events


def trace(seam: str | None, calls: Any, *args: Any, **kwargs: Any) -> list[Any]:
    async def run() -> list[Any]:
        with contextlib.nullcontext() if seam is None else adapter.install(seam):
            return Reading(*args, **kwargs).trace(calls)

    return asyncio.run(run())


def assert_same(calls: list[Any], *args: Any, seams: tuple[str, ...] = SEAMS, **kwargs: Any) -> list[Any]:
    expected = trace(None, calls, *args, **kwargs)
    for seam in seams:
        assert trace(seam, calls, *args, **kwargs) == expected, seam
    return expected


def records(n: int, *, start: int = 0, headers: bool = True) -> list[Any]:
    return [
        (
            None if i % 4 == 0 else b"key-%d" % i,
            None if i % 5 == 0 else b"value %d " % i * (i % 40),
            1_700_000_000_000 + i * i,
            [("name", b"x" * i), ("näme", None), ("", b"")] if headers and i % 3 == 0 else (),
        )
        for i in range(start, start + n)
    ]


def from_offset(data: bytes, offset: int) -> bytes:
    """As a broker answers a fetch: from the batch on that ends above the offset."""
    for header in batches(data):
        if header.next_offset > offset:
            return data[header.byte_pos :]
    return b""


# --- formats and codecs -----------------------------------------------------------------------------------------------

CODECS = {0: ("none", "gzip", "snappy"), 1: ("none", "gzip", "snappy", "lz4"), 2: ("none", "gzip", "snappy", "lz4", "zstd")}


def some(magic: int, codec: str, base_offset: int, n: int) -> bytes:
    if magic == 2:
        return encode_batch(records(n, start=base_offset), base_offset=base_offset, codec=codec)
    return message_set(records(n, start=base_offset, headers=False), magic=magic, base_offset=base_offset, codec=codec)


@pytest.mark.parametrize("calls", [[ONE] * 200, [ALL] * 3, [7] * 40, [10] * 10, [ONE, 3, ALL, ALL]], ids=brief)
@pytest.mark.parametrize(("magic", "codec"), [(magic, codec) for magic in CODECS for codec in CODECS[magic]])
def test_records_are_theirs(magic: int, codec: str, calls: list[Any]) -> None:
    data = b"".join(some(magic, codec, base, 30) for base in (10, 40, 90))
    events = assert_same(calls, data, 10)
    got = [record for _, out, _, _ in events if out for record in (out if isinstance(out, list) else [out])]
    assert [record.offset for record in got] == [*range(10, 70), *range(90, 120)]
    assert {type(record) for record in got} == {fetcher.ConsumerRecord}
    assert events[-1][2:] == (120, False)


@pytest.mark.parametrize(("magic", "codec"), [(0, "gzip"), (1, "none"), (1, "lz4"), (2, "none"), (2, "zstd")])
def test_a_position_within_a_batch(magic: int, codec: str) -> None:
    data = some(magic, codec, 10, 30) + some(magic, codec, 40, 30)
    for offset in (11, 39, 40, 55, 69):
        assert_same([5] * 20, from_offset(data, offset), offset)


def test_log_append_time() -> None:
    data = encode_batch(records(5), log_append_time=1_800_000_000_000)
    assert assert_same([ALL], data)[0][1][4].timestamp_type == 1
    assert_same([ALL], message_set(records(5, headers=False), codec="gzip", log_append_time=1_800_000_000_000))


@pytest.mark.parametrize("seam", SEAMS)
def test_what_is_cut_off_or_null(seam: str) -> None:
    whole = encode_batch(records(3))
    assert_same([ALL, ALL], whole + encode_batch(records(3), base_offset=3)[:-1])
    assert_same([ALL, ALL], whole + b"\0" * 5)

    async def sizes() -> None:
        for data in (b"", whole[:-1], whole[:11], whole):
            theirs = fetcher.MemoryRecords(data)
            with adapter.install(seam):
                ours = fetcher.MemoryRecords(data)
                assert (ours.has_next(), ours.size_in_bytes()) == (theirs.has_next(), theirs.size_in_bytes())
        with adapter.install(seam):
            null = fetcher.MemoryRecords(None)
            assert (null.has_next(), null.size_in_bytes(), null.next_batch()) == (False, 0, None)

    asyncio.run(sizes())


# --- transactions, compaction, positions ------------------------------------------------------------------------------


def transactions() -> bytes:
    """Producers 1 and 2 interleaved; 1 aborts at 6 and commits at 12, 2 commits at 10 and aborts at 15; plain records between."""

    def batch(producer: int, base: int, n: int, codec: str = "none") -> bytes:
        return encode_batch(
            records(n, start=base),
            base_offset=base,
            codec=codec,
            producer_id=producer,
            producer_epoch=0,
            transactional=producer >= 0,
        )

    return b"".join(
        (
            batch(1, 0, 3),
            batch(2, 3, 2, "lz4"),
            encode_batch(records(1, start=5), base_offset=5),
            control_batch("abort", producer_id=1, base_offset=6),
            batch(1, 7, 2, "zstd"),
            batch(2, 9, 1),
            control_batch("commit", producer_id=2, base_offset=10),
            batch(2, 11, 1),
            control_batch("commit", producer_id=1, base_offset=12),
            batch(2, 13, 2),
            control_batch("abort", producer_id=2, base_offset=15),
        )
    )


@pytest.mark.parametrize("calls", [[ONE] * 20, [ALL] * 3, [1] * 20, [2] * 20, [3] * 9], ids=brief)
@pytest.mark.parametrize("offset", [0, 1, 5, 6, 7, 11, 13, 15])
def test_transactions(calls: list[Any], offset: int) -> None:
    aborted = [(2, 11), (1, 0)]
    data = from_offset(transactions(), offset)
    committed = assert_same(calls, data, offset, aborted, committed=True)
    everything = assert_same(calls, data, offset, aborted, committed=False)
    assert committed[-1][2:] == everything[-1][2:] == (16, False)
    assert_same(calls, data, offset, None, committed=True)


def test_an_abort_marker_without_a_transaction() -> None:
    assert_same([ONE], control_batch("abort", producer_id=3), 0, [], committed=True)


def test_positions_pass_what_compaction_removed() -> None:
    data = b"".join(
        (
            encode_batch(records(3), base_offset=10, deltas=[0, 4, 9], last_offset_delta=20, codec="lz4"),
            encode_batch([], base_offset=31, last_offset_delta=8),
            encode_batch(records(2), base_offset=50, deltas=[1, 5], last_offset_delta=9),
            encode_batch([], base_offset=60, last_offset_delta=4),
        )
    )
    for calls in ([ONE] * 9, [ALL] * 3, [3] * 4, [2] * 5, [5, 5]):
        assert assert_same(calls, data, 10)[-1][2:] == (65, False)


def test_records_below_the_position_alone_give_the_end() -> None:
    data = encode_batch(records(3), base_offset=10, last_offset_delta=9)
    assert assert_same([ALL], data, 15) == [(ALL, [], 20, False)]
    assert assert_same([ONE], data, 15) == [(ONE, None, 20, False)]


# --- any bytes that are good, asked for in any way --------------------------------------------------------------------


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, int]]]:
    """Batches of all kinds, and the transactions that were aborted."""
    magic = draw(st.sampled_from([0, 1, 2, 2, 2, 2]))  # aiokafka takes the first batch's format for that of all
    out, offset = [], draw(st.integers(0, 5))
    open_since: dict[int, int] = {}
    aborted = []
    for _ in range(draw(st.integers(1, 6))):
        n = draw(st.integers(0 if magic == 2 else 1, 6))
        codec = draw(st.sampled_from(CODECS[magic]))
        producer = draw(st.sampled_from([-1, 1, 2])) if magic == 2 else -1
        if producer in open_since and draw(st.booleans()):
            kind = draw(st.sampled_from(["abort", "commit"]))
            out.append(control_batch(kind, producer_id=producer, base_offset=offset))
            since = open_since.pop(producer)
            if kind == "abort":
                aborted.append((producer, since))
            offset += 1
        elif magic < 2:
            out.append(some(magic, codec, offset, n))
            offset += n
        else:
            deltas = sorted(draw(st.sets(st.integers(0, 9), min_size=n, max_size=n)))
            last = draw(st.integers(deltas[-1] if deltas else 0, 12))
            if producer > 0:
                open_since.setdefault(producer, offset)
            out.append(
                encode_batch(
                    records(n, start=offset),
                    base_offset=offset,
                    codec=codec if n else "none",
                    deltas=deltas,
                    last_offset_delta=last,
                    producer_id=producer,
                    producer_epoch=0,
                    transactional=producer > 0,
                )
            )
            offset += last + 1
        offset += draw(st.sampled_from([0, 0, 3]))
    cut = draw(st.sampled_from([0, 0, 1, 30]))
    data = b"".join(out)
    if len(out) > 1 and 0 < cut < len(out[-1]):
        data = data[:-cut]
    return data, draw(st.permutations(aborted))


@settings(deadline=None, max_examples=150)
@given(
    logs(),
    st.lists(
        st.one_of(
            st.sampled_from([ONE, ONE, ALL]),
            st.integers(1, 8),
            st.sampled_from(["pause", "resume"]),
            st.tuples(st.just("seek"), st.integers(0, 60)),
        ),
        min_size=1,
        max_size=12,
    ),
    st.integers(0, 40),
    st.booleans(),
)
def test_any_log_asked_for_in_any_way(log: Any, calls: list[Any], offset: int, committed: bool) -> None:
    data, aborted = log
    assert_same([*calls, ONE, 3, ONE, ALL, ALL], from_offset(data, offset), offset, aborted, committed=committed)


# --- errors -----------------------------------------------------------------------------------------------------------

GOOD = encode_batch(records(4), base_offset=0) + control_batch("commit", producer_id=1, base_offset=4)
BAD_CRC = bytes([*(bad := encode_batch(records(4), base_offset=5))[:-1], bad[-1] ^ 1])
LATER = encode_batch(records(4), base_offset=9)


def badly_compressed() -> bytes:
    batch = bytearray(encode_batch(records(4), base_offset=5, codec="gzip"))
    batch[70:80] = bytes(10)
    return repair_crc(bytes(batch))


def unknown_codec() -> bytes:
    return repair_crc(patch(encode_batch(records(4), base_offset=5), attributes=7))


ERRORS = {
    "crc": (BAD_CRC, CorruptRecordException),
    "inflate": (badly_compressed(), None),
    "codec": (unknown_codec(), UnsupportedCodecError),
    "length": (patch(encode_batch(records(4), base_offset=5), length=3), CorruptRecordException),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_is_good_comes_before_the_error(name: str) -> None:
    bad, kind = ERRORS[name]
    data = GOOD + bad + LATER
    events = trace("reader", [ALL] * 4, data)
    assert [record.offset for record in events[0][1]] == [0, 1, 2, 3]
    assert events[0][2:] == (4, True)
    assert events[1][1:] == (kind or CorruptRecordException, 4, True)
    assert events[2][1:] == ([], 4, False)  # dropped: it will be fetched again
    assert trace("reader", [3, 3, 3, 3], data)[2][1] is (kind or CorruptRecordException)


@pytest.mark.parametrize("seam", SEAMS)
@pytest.mark.parametrize("name", ERRORS)
def test_one_at_a_time_errors_come_where_theirs_do(name: str, seam: str) -> None:
    bad, kind = ERRORS[name]
    data = GOOD + bad + LATER
    expected = trace(None, [ONE] * 9, data)
    found = trace(seam, [ONE] * 9, data)
    assert [event[2:] for event in found] == [event[2:] for event in expected]
    if kind is not None:  # else theirs raises what its codec does
        assert found == expected
    first = trace(seam, [ALL, ONE], bad, 5)
    assert first[0][1:] == (kind or CorruptRecordException, 5, True)
    assert first[1][1:] == (None, 5, False)


def test_errors_carry_ours_as_their_cause() -> None:
    async def run() -> None:
        with adapter.install():
            reading = Reading(BAD_CRC, 5)
            with pytest.raises(CorruptRecordException, match=r"CRC mismatch in orders-3, batch at offset 5") as caught:
                reading.call(ALL)
        cause = caught.value.__cause__
        assert isinstance(cause, CorruptBatchError)
        assert (cause.partition, cause.base_offset) == (3, 5)

    asyncio.run(run())


def test_crcs_are_not_checked_if_it_says_so() -> None:
    data = bytearray(encode_batch([(b"key", b"value")]))
    data[17] ^= 1
    assert_same([ALL, ALL], bytes(data), check_crcs=False)
    assert trace("reader", [ALL], bytes(data))[0][1] is CorruptRecordException


# --- deserializers ----------------------------------------------------------------------------------------------------


class Deserializer:
    """Notes what it is given, and fails at one value."""

    def __init__(self, fails_at: bytes | None = b"never", noted: list[Any] | None = None) -> None:
        self.calls: list[bytes | None] = [] if noted is None else noted
        self.fails_at = fails_at

    def __call__(self, data: bytes | None) -> Any:
        self.calls.append(data)
        if data == self.fails_at:
            raise ValueError("not mine")
        return ("read", data)


@pytest.mark.parametrize("calls", [[ONE] * 4, [ALL], [3, ONE, 2], [ONE, 3, ("seek", 3), ALL]], ids=brief)
@pytest.mark.parametrize("which", [("key",), ("value",), ("key", "value")], ids=str)
def test_deserializers_are_called_for_each_record_as_it_is_handed_out(which: tuple[str, ...], calls: list[Any]) -> None:
    data = encode_batch(records(12), codec="lz4")
    results = []
    for seam in (None, *SEAMS):
        asked: list[Any] = []
        deserializers = {name: Deserializer(noted=asked) for name in which}
        results.append((trace(seam, calls, data, **deserializers), asked))
    assert results[0] == results[1] == results[2]
    assert None in results[0][1]


@pytest.mark.parametrize("which", ["key", "value"])
def test_a_deserializer_that_raises(which: str) -> None:
    data = encode_batch([(b"k%d" % i, b"k%d" % i) for i in range(6)])
    for seam in SEAMS:
        assert trace(seam, [ONE] * 6, data, **{which: Deserializer(b"k3")}) == trace(
            None, [ONE] * 6, data, **{which: Deserializer(b"k3")}
        )
    events = trace("reader", [ALL] * 4, data, **{which: (fails := Deserializer(b"k3"))})
    assert [len(events[0][1]), *events[0][2:]] == [3, 3, True]
    assert events[1][1:] == (ValueError, 3, True)
    assert events[2][1:] == ([], 3, False)
    assert fails.calls == [b"k0", b"k1", b"k2", b"k3"]  # once each
    slices = trace("reader", [2] * 5, data, **{which: Deserializer(b"k3")})
    assert [event[1] if isinstance(event[1], type) else len(event[1]) for event in slices] == [2, 1, ValueError, 0]
    assert slices[-1][2:] == (3, False)


def test_a_deserializer_that_is_interrupted_loses_nothing() -> None:
    def interrupt(data: bytes | None) -> Any:
        if data == b"k3":
            raise KeyboardInterrupt
        return data

    async def run() -> None:
        with adapter.install():
            reading = Reading(encode_batch([(b"k%d" % i, None) for i in range(6)]), key=interrupt)
            with pytest.raises(KeyboardInterrupt):
                reading.call(ALL)
            assert reading.state.position == 0
            assert reading.call(ALL) == []  # dropped, and fetched again from the position
            assert not reading.result.has_more()

    asyncio.run(run())


# --- pieces -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("calls", [[ONE] * 500, [ALL] * 3, [7] * 90, [50] * 12], ids=brief)
@pytest.mark.parametrize("committed", [False, True])
def test_large_data_is_decoded_in_pieces(monkeypatch: pytest.MonkeyPatch, calls: list[Any], committed: bool) -> None:
    parts, offset = [], 0
    aborted = []
    for i in range(12):
        producer = i % 3
        parts.append(
            encode_batch(
                records(30, start=offset),
                base_offset=offset,
                codec="zstd",
                producer_id=producer,
                producer_epoch=0,
                transactional=True,
            )
        )
        kind = "abort" if i % 4 == 1 else "commit"
        if kind == "abort":
            aborted.append((producer, offset))
        parts.append(control_batch(kind, producer_id=producer, base_offset=offset + 30))
        offset += 31
    expected = trace(None, calls, b"".join(parts), 5, aborted, committed=committed)
    monkeypatch.setattr(adapter, "_PIECE_BYTES", 3000)
    pieces = itertools.count()
    decode = adapter.decode

    def counted(*args: Any, **kwargs: Any) -> Any:
        next(pieces)
        return decode(*args, **kwargs)

    monkeypatch.setattr(adapter, "decode", counted)
    assert trace("reader", calls, b"".join(parts), 5, aborted, committed=committed) == expected
    assert next(pieces) > 5


def test_a_piece_is_not_decoded_before_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "_PIECE_BYTES", 1)
    data = encode_batch(records(10)) + BAD_CRC[:0] + bytes([*encode_batch(records(10), base_offset=10)[:-1], 99])
    events = trace("reader", [5, 5, 5], data)
    assert [len(event[1]) for event in events[:2]] == [5, 5]
    assert events[2][1] is CorruptRecordException


# --- installing -------------------------------------------------------------------------------------------------------


def bound() -> list[Any]:
    return [
        fetcher.MemoryRecords,
        fetcher.PartitionRecords,
        fetcher.FetchResult,
        vars(fetcher.FetchResult)["getall"],
        vars(fetcher.FetchResult)["getone"],
        vars(fetcher.Fetcher)["_proc_fetch_request"],
        fetcher.ConsumerRecord,
    ]


@pytest.mark.parametrize("seam", SEAMS)
def test_uninstall_restores_exactly(seam: str) -> None:
    before = bound()
    adapter.uninstall()
    assert bound() == before
    adapter.install(seam)
    try:
        installed = bound()
        assert sum(a is not b for a, b in zip(before, installed, strict=True)) == (4 if seam == "reader" else 1)
        adapter.install(seam)
        assert bound() == installed
    finally:
        adapter.uninstall()
        adapter.uninstall()
    assert bound() == before


def test_contexts_take_back_what_they_installed() -> None:
    before = bound()
    with contextlib.suppress(ZeroDivisionError), adapter.install():
        with adapter.install():
            pass
        assert bound() != before
        with pytest.raises(UsageError, match="'reader' is installed"):
            adapter.install("decoder")
        assert bound() != before
        raise ZeroDivisionError
    assert bound() == before


@pytest.mark.parametrize("version", ["0.9.0", "0.8.1", "0.15.0", "1.0.0", "0.100.0", "unknown"])
def test_an_unknown_version_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    before = bound()
    monkeypatch.setattr(adapter.aiokafka, "__version__", version)
    with pytest.raises(UsageError, match=rf"aiokafka {version} is not .* 0\.10, 0\.11, 0\.12, 0\.13, 0\.14"):
        adapter.install()
    assert bound() == before


@pytest.mark.parametrize("version", ["0.10.0", "0.12.0", "0.14.0", "0.14.7"])
def test_known_versions(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(adapter.aiokafka, "__version__", version)
    with adapter.install():
        pass


def test_another_shape_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def _proc_fetch_request(self: Any, assignment: Any, request: Any) -> bool:
        raise AssertionError

    with monkeypatch.context() as patched:
        patched.setattr(fetcher.Fetcher, "_proc_fetch_request", _proc_fetch_request)
        before = bound()
        with pytest.raises(UsageError, match=r"_proc_fetch_request takes \(self, assignment, request\)"):
            adapter.install()
        assert bound() == before
    with monkeypatch.context() as patched:
        patched.delattr(fetcher.FetchResult, "getall")
        with pytest.raises(UsageError, match="lacks what this adapter rebinds"):
            adapter.install()
        assert fetcher.PartitionRecords is not adapter.PartitionRecords
    with pytest.raises(ValueError, match="'reader' or 'decoder'"):
        adapter.install("fetcher")


def test_a_failure_halfway_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    before = bound()
    names = adapter._rebinding._names

    def fails(seam: str) -> Any:
        yield from names(seam)
        yield int, "from_bytes", None  # can't be set

    monkeypatch.setattr(adapter._rebinding, "_names", fails)
    with pytest.raises(TypeError):
        adapter.install()
    assert bound() == before
    assert adapter._rebinding.seam is None


def test_somebody_elses_rebinding_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    before = bound()
    adapter.install()
    try:
        with monkeypatch.context() as patched:
            patched.setattr(fetcher, "PartitionRecords", object)
            with pytest.raises(UsageError, match=r"fetcher\.PartitionRecords has been rebound by somebody else"):
                adapter.uninstall()
            assert fetcher.MemoryRecords is adapter.MemoryRecords
    finally:
        adapter.uninstall()
    assert bound() == before


def test_results_outlive_install_and_uninstall() -> None:
    data = encode_batch(records(20))

    async def run() -> list[Any]:
        out = []
        old = Reading(data)
        out.append(old.call(5))
        with adapter.install():
            out.append(old.call(5))
            new = Reading(data)
            out.append(new.call(5))
        out.append(new.call(5))
        out.append(new.call(ALL))
        out.append(old.call(ALL))
        return out

    first, second, again, after, rest, old_rest = asyncio.run(run())
    assert first == again
    assert second == after
    assert [record.offset for record in rest] == list(range(10, 20))
    assert rest == old_rest


# --- what differs, as docs/adapters.md says ---------------------------------------------------------------------------


def outcome(seam: str | None, data: bytes, **kwargs: Any) -> list[Any]:
    """Offsets of the records that getone() gives, then the name of what it raises."""
    events = trace(seam, [ONE] * 9, data, **kwargs)
    return [got.__name__ if isinstance(got, type) else got.offset for _, got, _, _ in events if got is not None]


HEADER = encode_batch([(b"k", b"v", None, [("hh", b"v")])])
PLAIN = encode_batch([(b"k", b"v")])

DIFFERENT = {
    "gzip": (repair_crc(badly_compressed()), {"offset": 5}, ["error"], ["CorruptRecordException"]),
    "header key": (repair_crc(HEADER.replace(b"hh", b"\xff\xfe")), {}, ["UnicodeDecodeError"], [0]),
    "lz4 in format 0": (message_set([(b"k", b"v" * 50)], magic=0, codec="lz4"), {}, ["UnsupportedCodecError"], [0]),
    "old after new": (PLAIN + message_set([(b"k", b"v")], base_offset=1), {}, [0, "CorruptRecordException"], [0, 1]),
    "magic 3": (patch(PLAIN, magic=3), {}, [0], ["CorruptRecordException"]),
    "below": (encode_batch([None] * 2) + encode_batch([None] * 2, base_offset=2), {"offset": 3}, [2, 3], [3]),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_differs(name: str) -> None:
    data, kwargs, theirs, ours = DIFFERENT[name]
    assert outcome(None, data, **kwargs) == theirs
    assert outcome("reader", data, **kwargs) == ours
    if name != "below":  # there it is aiokafka's code that passes over records
        assert outcome("decoder", data, **kwargs) == ours


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_codec_that_aiokafka_has_no_package_for(monkeypatch: pytest.MonkeyPatch, codec: str) -> None:
    data = encode_batch([(b"k", b"v" * 100)], codec=codec)
    monkeypatch.setattr(adapter.aiokafka.codec, f"has_{codec}", lambda: False)
    assert outcome("decoder", data) == ["UnsupportedCodecError"]
    assert outcome("reader", data) == [0]


@pytest.mark.parametrize("seam", SEAMS)
def test_header_keys_that_are_not_utf8(seam: str) -> None:
    data = repair_crc(HEADER.replace(b"hh", b"\xff\xfe"))
    ((_, (record,), *_),) = trace(seam, [ALL], data)
    ((key, value),) = record.headers
    assert value == b"v"
    assert key == "\ufffd\ufffd" if seam == "decoder" else key.encode("utf-8", "surrogateescape") == b"\xff\xfe"


def test_batches_read_by_hand() -> None:
    """What a program sees that uses the classes of the decoder seam itself."""
    data = transactions()
    theirs, ours = fetcher.MemoryRecords(data), adapter.MemoryRecords(data)
    while (expected := theirs.next_batch()) is not None:
        found = ours.next_batch()
        assert found is not None
        for name in ("base_offset", "next_offset", "is_control_batch", "is_transactional", "producer_id", "crc", "magic"):
            assert getattr(found, name) == getattr(expected, name), name
        assert found.validate_crc()
        if found.is_control_batch:
            assert next(found).key == next(expected).key
        else:
            fields = ("offset", "key", "value", "timestamp", "timestamp_type", "checksum", "headers")
            assert [[getattr(r, f) for f in fields] for r in found] == [[getattr(r, f) for f in fields] for r in expected]
    assert ours.next_batch() is None
    empty = adapter.DefaultRecordBatch(repair_crc(patch(control_batch("abort", producer_id=1)[:61], length=49, count=0)))
    assert list(empty) == []
    with pytest.raises(StopIteration):
        next(empty)
