"""Connections: negotiation, matching answers, losing, backing off, finding another broker."""

from __future__ import annotations

import pytest

from fastfetch.errors import UnsupportedVersionError
from fastfetch.protocol import encode_response, tables
from fastfetch.types import TopicPartition
from tests.engine.script import Asked, Script, batch

P0 = TopicPartition("t", 0)


def frame(asked: Asked, correlation_id: int, records: bytes) -> bytes:
    part = {"partition_index": 0, "high_watermark": 100, "records": records}
    body = {"responses": [{"topic": "t", "partitions": [part]}]}
    return encode_response(asked.api, asked.version, correlation_id, body)[4:]


# --- N02 ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [1, -1, 1000])
def test_an_answer_to_another_question_closes_the_connection(wrong: int) -> None:
    s = Script()
    s.started()
    asked = s.expect("Fetch")
    s.deliver(asked.conn, frame(asked, asked.correlation_id + wrong, batch(0)))
    assert asked.conn not in s.opened
    assert s.take() == []
    assert s.position() == 0
    s.advance(200)
    again = s.expect("Fetch")
    assert again.conn != asked.conn
    assert again.partitions()[P0]["fetch_offset"] == 0
    s.deliver(asked.conn, frame(asked, asked.correlation_id, batch(0)))  # late, of the connection given up
    assert s.take() == []
    s.fetched(again, {0: batch(0)})
    assert len(s.take()) == 10


def test_an_answer_to_no_question_closes_the_connection() -> None:
    s = Script()
    s.started()
    s.auto.discard("Metadata")
    conn = next(conn for conn, host in s.opened.items() if host == "boot")
    s.deliver(conn, b"\0\0\0\1")
    assert conn not in s.opened


@pytest.mark.parametrize("junk", [b"", b"\0", b"\0\0\0", b"\xff" * 40])
def test_bytes_that_make_no_sense_close_the_connection(junk: bytes) -> None:
    s = Script()
    s.started()
    asked = s.expect("Fetch")
    s.deliver(asked.conn, junk if len(junk) < 4 else asked.correlation_id.to_bytes(4, "big") + junk)
    assert asked.conn not in s.opened
    s.advance(200)
    s.fetched(s.expect("Fetch"), {0: batch(0)})
    assert len(s.take()) == 10


# --- N04, fault 10 --------------------------------------------------------------------------------------------------------


def test_a_connection_lost_in_mid_fetch_is_asked_again_at_the_same_position() -> None:
    s = Script()
    s.started(at=3)
    s.lose(s.expect("Fetch").conn)
    s.advance(100)
    fetch = s.expect("Fetch")
    assert fetch.partitions()[P0]["fetch_offset"] == 3
    s.engine.raise_fault()


def test_an_idle_connection_that_goes_is_no_error_and_comes_back_when_needed() -> None:
    s = Script()
    s.started()
    conn = next(conn for conn, host in s.opened.items() if host == "boot")
    connects = len(s.connects)
    s.lose(conn)
    s.advance(1_000)
    s.engine.raise_fault()
    assert len(s.connects) == connects, "nobody needs it"
    found = s.engine.offsets_at({P0: -1})
    s.advance(100)
    s.found(s.expect("ListOffsets"), {0: 9})
    assert found.done


def test_our_own_idle_close_spares_connections_with_questions_open() -> None:
    s = Script(connections_max_idle_ms=5_000, request_timeout_ms=60_000)
    s.started()
    fetch = s.expect("Fetch")
    s.advance(20_000)
    assert fetch.conn in s.opened
    assert "boot" not in s.opened.values()


def test_a_black_hole_ends_with_the_request_timeout() -> None:
    s = Script(request_timeout_ms=5_000)
    s.started()
    first = s.expect("Fetch")
    s.advance(4_990)
    assert first.conn in s.opened
    s.advance(20)
    assert first.conn not in s.opened
    s.advance(200)
    assert s.expect("Fetch").conn != first.conn


def test_bytes_that_keep_coming_are_no_black_hole() -> None:
    from fastfetch.engine.events import BytesArrived

    s = Script(request_timeout_ms=5_000)
    s.started()
    first = s.expect("Fetch")
    for _ in range(10):
        s.advance(3_000)
        s.engine.handle(BytesArrived(first.conn), s.now)
    assert first.conn in s.opened


def test_a_connect_that_hangs_ends_and_the_next_bootstrap_server_is_asked_meanwhile() -> None:
    from fastfetch.config import ConsumerConfig
    from fastfetch.engine.actions import OpenConnection
    from fastfetch.engine.client import Engine

    engine = Engine(ConsumerConfig.from_settings(bootstrap_servers="hole:1,good:2", socket_connection_setup_timeout_ms=10_000))
    opened: list[tuple[int, str]] = []
    now = 0
    while now < 12_000:
        engine.pump(now)
        opened += [(now, a.host) for a in engine.take_actions() if isinstance(a, OpenConnection)]
        wake = engine.wake_at_ms
        assert wake is not None
        now = max(now + 1, wake)
    assert opened[0] == (0, "hole")
    assert opened[1] == (1_000, "good")
    assert "no connection within 10000 ms" in str(engine.channels.nodes[-1].last_error)


# --- fault 3: back-off ----------------------------------------------------------------------------------------------------


def test_dead_brokers_are_knocked_at_rarely_and_come_back_by_themselves() -> None:
    s = Script(nodes=2, partitions=2, group_id="g")
    s.started(0, 1)
    s.down = {"boot", "b1", "b2"}
    for conn in list(s.opened):
        s.lose(conn)
    s.engine.commit(s.engine.subscription.positions(), s.now + 200_000)
    s.advance(5_000)
    begun = s.now
    s.connects.clear()
    s.advance(60_000)
    for host in ("boot", "b1", "b2"):
        times = [ms for ms, name in s.connects if name == host]
        assert len(times) <= 2 * 60, f"{host}: {len(times)} connects in 60 s"
    assert s.position() == 0
    assert "connection refused" in str(s.engine.unreachable())
    s.down.clear()
    s.advance(1_500)
    assert s.expect("Fetch").partitions()
    assert s.now - begun < 62_000
    assert s.engine.unreachable() is None


def test_the_delay_grows_to_its_limit_with_a_jitter() -> None:
    from fastfetch.engine.backoff import Backoff

    delays = [Backoff(50, 1_000, seed).delay_ms(n) for n in range(1, 12) for seed in range(50)]
    assert min(delays) >= 40
    assert max(delays) <= 1_200
    assert len(set(delays[-50:])) > 10


@pytest.mark.parametrize(("after", "hint"), [(0, "TLS"), (1, "SASL"), (2, None)])
def test_a_port_that_wants_more_than_plaintext_is_named(after: int, hint: str | None) -> None:
    """It closes without a word: one for TLS before the first answer, one for SASL after ApiVersions."""
    s = Script()
    s.auto = {"ApiVersions", "Metadata"} if after == 2 else {"ApiVersions"} if after == 1 else set()
    s.assign()
    s.run()
    for conn in list(s.opened):
        s.lose(conn)
    said = str(s.engine.channels.nodes[-1].last_error)
    assert "closed by the other side" in said
    assert [word for word in ("TLS", "SASL") if word in said] == ([] if hint is None else [hint])


def test_too_little_memory_for_an_answer_is_the_callers_to_hear_once() -> None:
    from fastfetch.engine.events import ConnectionLost

    s = Script(partitions=2, nodes=2)
    s.started(0, 1)
    fetch = s.expect("Fetch", node=1)
    s._gone(fetch.conn)
    s.engine.handle(ConnectionLost(fetch.conn, "no memory for its answer", MemoryError()), s.now)
    s.run()
    with pytest.raises(MemoryError):
        s.engine.raise_fault()
    s.engine.raise_fault()
    s.advance(2_000)
    again = s.expect("Fetch", node=1)
    assert again.partitions()[P0]["fetch_offset"] == 0
    s.fetched(again, {0: batch(0)})
    assert len(s.take()) == 10


# --- negotiation ----------------------------------------------------------------------------------------------------------


def test_every_connection_negotiates_first() -> None:
    s = Script()
    s.started()
    seen: set[int] = set()
    for asked in s.history:
        assert (asked.api is tables.API_VERSIONS) == (asked.conn not in seen)
        seen.add(asked.conn)


def test_a_broker_that_knows_only_an_older_api_versions() -> None:
    s = Script()
    s.auto.discard("ApiVersions")
    s.started()
    asked = s.expect("ApiVersions")
    s.answer(asked, {"error_code": 35, "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 2}]})
    asked = s.expect("ApiVersions")
    assert asked.version == 2
    s.auto.add("ApiVersions")
    s.answer(asked, s._apiversions(asked))
    s.expect("Fetch")


def test_a_peer_that_refuses_every_api_versions_is_not_asked_for_ever() -> None:
    s = Script()
    s.auto.clear()
    s.assign()
    refused = {"error_code": 35, "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 4}]}
    asked = s.expect("ApiVersions")
    for _ in range(asked.version + 1):
        s.answer(s.expect("ApiVersions", when=lambda a: a.conn == asked.conn), refused)
    assert asked.conn not in s.opened
    assert "ApiVersions" in str(s.engine.unreachable())
    s.advance(10_000)
    assert len(s.connects) <= 2 * 10 + 5


def test_a_downgraded_broker_is_spoken_to_in_its_older_versions() -> None:
    s = Script(versions={"Fetch": (4, 12)})
    s.started()
    fetch = s.expect("Fetch")
    assert fetch.version == 12
    s.versions["Fetch"] = (4, 10)
    s.lose(fetch.conn)
    s.advance(200)
    again = s.expect("Fetch")
    assert again.version == 10
    s.fetched(again, {0: batch(0)})
    assert len(s.take()) == 10


def test_no_common_fetch_version_is_said_with_both_ranges_and_seeks_go_on() -> None:
    s = Script(versions={"Fetch": (0, 3)})
    s.started()
    with pytest.raises(UnsupportedVersionError, match=r"Fetch.*4 to 1[0-9].*0 to 3"):
        s.engine.raise_fault()


@pytest.mark.parametrize("top", [4, 6, 9, 11, 12, 13, 15, 16, 17])
def test_every_fetch_version(top: int) -> None:
    """By name up to v12, by id from v13 on if metadata gives one."""
    s = Script(versions={"Fetch": (4, top)})
    s.topic_ids["t"] = b"i" * 16
    s.started()
    fetch = s.expect("Fetch")
    assert fetch.version == min(top, 16)
    s.fetched(fetch, {0: batch(0)})
    assert len(s.take()) == 10


def test_without_topic_ids_names_are_used() -> None:
    s = Script(versions={"Fetch": (4, 17)})
    s.started()
    assert s.expect("Fetch").version == 12


def test_old_metadata_and_list_offsets() -> None:
    s = Script(versions={"Fetch": (4, 4), "Metadata": (0, 4), "ListOffsets": (1, 1)})
    s.assign()
    s.found(s.expect("ListOffsets"), {0: 6})
    assert s.expect("Fetch").partitions()[P0]["fetch_offset"] == 6


def test_a_connection_to_an_upgraded_broker_negotiates_again() -> None:
    s = Script(versions={"Fetch": (4, 11)})
    s.started()
    fetch = s.expect("Fetch")
    assert fetch.version == 11
    s.versions["Fetch"] = (4, 12)
    s.lose(fetch.conn)
    s.advance(200)
    assert s.expect("Fetch").version == 12


# --- KIP-219 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("told", "kept"), [(2_000, 2_000), (2**31 - 1, 300_000)])
def test_throttling_is_honoured_and_capped(told: int, kept: int) -> None:
    s = Script()
    s.started()
    part = {"partition_index": 0, "high_watermark": 100, "records": batch(0)}
    s.answer(s.expect("Fetch"), {"throttle_time_ms": told, "responses": [{"topic": "t", "partitions": [part]}]})
    s.advance(kept - 10)
    s.none("Fetch")
    s.advance(20)
    s.expect("Fetch")


# --- lanes ----------------------------------------------------------------------------------------------------------------


def test_a_long_fetch_delays_no_commit_and_no_look_up() -> None:
    s = Script(group_id="g")
    s.started()
    fetch = s.expect("Fetch")  # stays open
    s.engine.commit(s.engine.subscription.positions(), s.now + 60_000)
    s.engine.offsets_at({P0: -1})
    assert len({fetch.conn, s.expect("OffsetCommit").conn, s.expect("ListOffsets").conn}) == 3


def test_metadata_goes_to_another_broker_when_one_is_lost() -> None:
    s = Script(nodes=3, partitions=3)
    s.started(0, 1, 2)
    s.down = {"boot"}
    for conn, host in list(s.opened.items()):
        if host == "boot":
            s.lose(conn)
    s.engine.raise_fault()
    before = s.count("Metadata")
    s.engine.metadata.request_update()
    s.advance(1_000)
    assert s.count("Metadata") > before
