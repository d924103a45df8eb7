"""Settings: both spellings, Java's defaults, and messages that say what to write instead."""

from __future__ import annotations

from typing import Any

import pytest

from fastfetch.config import ConsumerConfig, parse_bootstrap_servers
from fastfetch.errors import ConfigError

SERVERS = "127.0.0.1:9092"


def config(**settings: Any) -> ConsumerConfig:
    return ConsumerConfig.from_settings(bootstrap_servers=SERVERS, **settings)


def test_both_spellings_are_the_same() -> None:
    dotted = ConsumerConfig.from_settings(
        {"bootstrap.servers": SERVERS, "group.id": "g", "fetch.max.wait.ms": "100", "check.crcs": "false"}
    )
    assert dotted == config(group_id="g", fetch_max_wait_ms=100, check_crcs=False)
    assert (dotted.fetch_max_wait_ms, dotted.check_crcs) == (100, False)


def test_defaults_are_those_of_the_java_consumer_but_for_the_written_ones() -> None:
    java = {
        "group_id": None, "auto_offset_reset": "latest", "enable_auto_commit": True, "auto_commit_interval_ms": 5000,
        "isolation_level": "read_uncommitted", "check_crcs": True, "fetch_min_bytes": 1, "fetch_max_bytes": 52428800,
        "fetch_max_wait_ms": 500, "max_partition_fetch_bytes": 1048576, "max_poll_records": 500, "metadata_max_age_ms": 300000,
        "request_timeout_ms": 30000, "default_api_timeout_ms": 60000, "retry_backoff_ms": 100, "retry_backoff_max_ms": 1000,
        "reconnect_backoff_ms": 50, "reconnect_backoff_max_ms": 1000, "socket_connection_setup_timeout_ms": 10000,
        "connections_max_idle_ms": 540000, "send_buffer_bytes": 131072, "security_protocol": "PLAINTEXT",
        "session_timeout_ms": 45000, "heartbeat_interval_ms": 3000, "max_poll_interval_ms": 300000, "group_instance_id": None,
        "group_protocol": "classic", "group_remote_assignor": None, "exclude_internal_topics": True,
        "partition_assignment_strategy": ("range", "cooperative-sticky"),
    }  # fmt: skip
    ours = config()
    assert {name: getattr(ours, name) for name in java} == java
    assert not ours.allow_auto_create_topics, "reading creates nothing"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"bootstrap_server": SERVERS}, r"unknown setting 'bootstrap_server'. Did you mean bootstrap_servers\?"),
        ({"bootstrap.server": SERVERS}, r"Did you mean bootstrap.servers\?"),
        ({"max_poll_record": 5}, r"Did you mean max_poll_records\?"),
        ({"xyzzy": 5}, "unknown setting 'xyzzy'; the known ones are"),
        ({}, "bootstrap_servers is missing"),
        ({"bootstrap_servers": SERVERS, "bootstrap.servers": SERVERS}, "given twice"),
        ({"session_timeout": 5}, r"Did you mean session_timeout_ms\?"),
        ({"ssl_cafile": "x"}, "TLS and SASL"),
        ({"bootstrap_servers": SERVERS, "security_protocol": "SSL"}, "only PLAINTEXT"),
        ({"bootstrap_servers": SERVERS, "security_protocol": "ssl?"}, "security_protocol must be PLAINTEXT"),
        ({"bootstrap_servers": SERVERS, "auto_offset_reset": "smallest"}, "none or by_duration:PT1H; got 'smallest'"),
        ({"bootstrap_servers": SERVERS, "auto_offset_reset": "earlist"}, r"Did you mean earliest\?"),
        ({"bootstrap_servers": SERVERS, "auto_offset_reset": "by_duration:1h"}, "ISO 8601 duration.*PT1H.*got 'by_duration:1h'"),
        ({"bootstrap_servers": SERVERS, "on_corrupt": "ignore"}, "raise or skip; got 'ignore'"),
        ({"bootstrap_servers": SERVERS, "on_stats": 5}, "function of one argument"),
        ({"bootstrap_servers": SERVERS, "isolation_level": 1}, "read_uncommitted or read_committed"),
        ({"bootstrap_servers": SERVERS, "max_poll_records": 0}, "max_poll_records must be from 1 to 2147483647; got 0"),
        ({"bootstrap_servers": SERVERS, "max_poll_records": "many"}, "whole number"),
        ({"bootstrap_servers": SERVERS, "max_poll_records": 1.5}, "whole number"),
        ({"bootstrap_servers": SERVERS, "max_poll_records": True}, "whole number"),
        ({"bootstrap_servers": SERVERS, "receive_buffer_bytes": 0}, "or -1; got 0"),
        ({"bootstrap_servers": SERVERS, "check_crcs": "yes"}, "True or False"),
        ({"bootstrap_servers": SERVERS, "group_id": " "}, "must not be blank"),
        ({"bootstrap_servers": SERVERS, "group_instance_id": " "}, "group_instance_id must not be blank.*None, to be a dynamic"),
        ({"bootstrap_servers": SERVERS, "group_instance_id": 5}, "must be a string"),
        (
            {"bootstrap_servers": SERVERS, "group_protocol": "clasic"},
            r"classic or consumer; got 'clasic'. Did you mean classic\?",
        ),
        ({"bootstrap_servers": SERVERS, "max_poll_interval_ms": 0}, "max_poll_interval_ms must be from 1"),
        ({"bootstrap_servers": SERVERS, "session_timeout_ms": 2}, "session_timeout_ms must be from 3"),
        ({"bootstrap_servers": SERVERS, "exclude_internal_topics": 1}, "True or False"),
        ({"bootstrap_servers": SERVERS, "client_id": "x" * 40_000}, "32767"),
        ({"bootstrap_servers": SERVERS, "fetch_max_wait_ms": 45_000}, r"smaller than request_timeout_ms \(30000\).*got 45000"),
        ({"bootstrap_servers": SERVERS, "retry_backoff_ms": 50, "retry_backoff_max_ms": 10}, "must not be larger"),
    ],
)
def test_a_message_says_what_where_and_what_next(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ConsumerConfig.from_settings(given)


class ByHand:
    """The form of an assignor, and no more."""

    name = "by-hand"
    protocols = ("eager",)

    def subscription_user_data(self, topics: Any) -> bytes | None:
        return None

    def assign(self, cluster: Any, subscriptions: Any) -> Any:
        return {}

    def on_assignment(self, assignment: Any, generation: int) -> None:
        pass


JAVA = "org.apache.kafka.clients.consumer."
BY_HAND = ByHand()


@pytest.mark.parametrize(
    ("given", "strategies"),
    [
        ("sticky", ("sticky",)),
        (" roundrobin , range", ("roundrobin", "range")),
        (["cooperative-sticky", "range"], ("cooperative-sticky", "range")),
        (f"{JAVA}RangeAssignor,{JAVA}RoundRobinAssignor", ("range", "roundrobin")),
        ([f"{JAVA}StickyAssignor", f"{JAVA}CooperativeStickyAssignor"], ("sticky", "cooperative-sticky")),
        (ByHand, (ByHand,)),
        (BY_HAND, (BY_HAND,)),
        (("range", BY_HAND), ("range", BY_HAND)),
    ],
)
def test_strategies_are_names_objects_and_classes(given: Any, strategies: tuple[Any, ...]) -> None:
    assert config(partition_assignment_strategy=given).partition_assignment_strategy == strategies


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("cooperative", r"'cooperative' is none of range, .*object or a class. Did you mean cooperative-sticky\?"),
        ("xyzzy", "'xyzzy' is none of .*given as an object or a class$"),
        (f"{JAVA}RangeAssigner", "RangeAssigner' is none of"),
        ("", "'' is none of"),
        ([], "is empty; give one or more of range, roundrobin"),
        (["range", f"{JAVA}RangeAssignor"], "'range' is listed twice"),
        ([ByHand, ByHand()], "'by-hand' is listed twice"),
        (None, "must hold names.*None has no assign"),
        ({"range"}, "must hold names"),
        (type("NoMethods", (), {"name": "x", "assign": lambda *_: {}}), "has no subscription_user_data and no on_assignment"),
        (type("NoName", (ByHand,), {"name": None}), "needs a name"),
        (type("BlankName", (ByHand,), {"name": " "})(), "needs a name"),
        (type("LongName", (ByHand,), {"name": "x" * 40_000})(), "32767"),
        (type("Text", (ByHand,), {"protocols": "eager"}), "must be a tuple of 'eager', 'cooperative' or both; got 'eager'"),
        (type("None", (ByHand,), {"protocols": ()}), "must be a tuple"),
        (type("Lazy", (ByHand,), {"protocols": ("lazy",)}), "must be a tuple"),
    ],
)
def test_strategies_that_are_none(given: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=f"partition_assignment_strategy.*{says}"):
        config(partition_assignment_strategy=given)


@pytest.mark.parametrize("name", ["session_timeout_ms", "heartbeat_interval_ms", "partition_assignment_strategy"])
def test_what_the_broker_decides_under_the_consumer_protocol_is_not_set_here(name: str) -> None:
    default = getattr(config(group_protocol="consumer"), name)
    with pytest.raises(ConfigError, match=f"{name} has no meaning with group_protocol='consumer'"):
        config(group_protocol="consumer", **{name: default})


def test_the_broker_s_assignor_is_for_the_consumer_protocol() -> None:
    assert config(group_protocol="consumer", group_remote_assignor="uniform").group_remote_assignor == "uniform"
    with pytest.raises(ConfigError, match="choose with partition_assignment_strategy"):
        config(group_remote_assignor="uniform")


def test_heartbeats_leave_room_in_the_session(caplog: pytest.LogCaptureFixture) -> None:
    assert config(session_timeout_ms=6_000).heartbeat_interval_ms == 2_000, "three in a session, if nobody says otherwise"
    assert config(session_timeout_ms=90_000).heartbeat_interval_ms == 3_000
    assert config(session_timeout_ms=9_000, heartbeat_interval_ms=3_000).heartbeat_interval_ms == 3_000
    assert not caplog.records
    assert config(session_timeout_ms=9_000, heartbeat_interval_ms=3_001).heartbeat_interval_ms == 3_001
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "more than a third of session_timeout_ms (9000)" in caplog.text
    with pytest.raises(ConfigError, match=r"smaller than session_timeout_ms \(9000\).*got 9000"):
        config(session_timeout_ms=9_000, heartbeat_interval_ms=9_000)


def test_a_config_error_is_a_value_error_too() -> None:
    assert issubclass(ConfigError, ValueError)


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("a:1", (("a", 1),)),
        (" a:1 , b:2,", (("a", 1), ("b", 2))),
        (["a:1", "b:2", "a:1"], (("a", 1), ("b", 2))),
        ("[::1]:9092", (("::1", 9092),)),
    ],
)
def test_bootstrap_servers(text: Any, servers: tuple[tuple[str, int], ...]) -> None:
    assert parse_bootstrap_servers(text) == servers


@pytest.mark.parametrize("text", ["", ",", "a", "a:", ":1", "a:0", "a:70000", "a:b", "::1:9092", "a:١", 5, [5], None])
def test_bootstrap_servers_that_are_none(text: Any) -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers"):
        parse_bootstrap_servers(text)


def test_a_frame_limit_holds_what_a_fetch_may_bring() -> None:
    assert config().max_frame_bytes == 100_000_000
    assert config(fetch_max_bytes=200_000_000, max_partition_fetch_bytes=50_000_000).max_frame_bytes > 250_000_000


@pytest.mark.parametrize(
    ("duration", "ms"),
    [("PT1H", 3_600_000), ("P1D", 86_400_000), ("P1DT2H3M4.5S", 93_784_500), ("pt0.0015s", 1), ("PT0S", 0), ("PT1.S", 1000)],
)
def test_durations_are_those_of_iso_8601(duration: str, ms: int) -> None:
    config = ConsumerConfig.from_settings(bootstrap_servers=SERVERS, auto_offset_reset=f"by_duration:{duration}")
    assert config.reset_duration_ms == ms
    assert ConsumerConfig.from_settings(bootstrap_servers=SERVERS).reset_duration_ms is None


NOT_DURATIONS = ["", "P", "PT", "1H", "P1H", "PT1D", "PT-1H", "-PT1H", "P1DT", "PT1H ", "PT.S", "P1Y", "PT\u0661H"]


@pytest.mark.parametrize("duration", NOT_DURATIONS)
def test_what_is_no_duration(duration: str) -> None:
    with pytest.raises(ConfigError, match="ISO 8601"):
        ConsumerConfig.from_settings(bootstrap_servers=SERVERS, auto_offset_reset=f"by_duration:{duration}")
