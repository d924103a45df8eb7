"""KafkaConsumer by kafka-python's name: its face, its configuration, errors of both, and what is its own."""

from __future__ import annotations

import asyncio
import gc
import inspect
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import fastfetch
from fastfetch.adapters import kafka_api, settings
from fastfetch.adapters.kafka_api import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from fastfetch.adapters.kafka_api import errors as kafka_errors
from fastfetch.adapters.kafka_api import settings as kafka_settings
from fastfetch.adapters.kafka_api.reader import deserializer, whole_name
from fastfetch.assignors import Assignor
from fastfetch.errors import CommitFailedError, FastFetchError, GroupAuthorizationError, LogTruncationError, broker_error
from fastfetch.testing import Broker, encode_batch, faults
from tests.test_consumer_manners import EveryPoint, Interrupt, until

kafka = pytest.importorskip("kafka")
if tuple(map(int, kafka.__version__.split(".")[:3])) < (3, 0, 12):
    pytest.skip("compared with kafka-python 3.0.12 and later", allow_module_level=True)

P0 = TopicPartition("orders", 0)
DUNDERS = {"__init__", "__iter__", "__next__", "__enter__", "__exit__"}
METHODS = sorted(name for name, _ in inspect.getmembers(kafka.KafkaConsumer, callable) if name[0] != "_" or name in DUNDERS)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders")
        broker.append("orders", 0, encode_batch([b"%d" % i for i in range(10)]))
        yield broker


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this test's process were new."""
    monkeypatch.setattr(settings, "_said", set())


def consumer(broker: Broker, *topics: str, **configs: Any) -> KafkaConsumer:
    configs.setdefault("auto_offset_reset", "earliest")
    configs.setdefault("fetch_max_wait_ms", 50)
    return KafkaConsumer(*topics, bootstrap_servers=broker.bootstrap_servers, **configs)


def read(reader: KafkaConsumer, count: int, seconds: float = 20) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < deadline:
        for records in reader.poll(timeout_ms=200).values():
            found += records
    return found


# ------------------------------------------------------------------------------------------------------------------ its face


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_the_signature_of_kafka_python(name: str) -> None:
    def face(kind: type) -> list[tuple[str, Any, Any]]:
        return [(p.name, p.kind, p.default) for p in inspect.signature(getattr(kind, name)).parameters.values()]

    assert face(KafkaConsumer) == face(kafka.KafkaConsumer)


# What is made of classes there is made of names here.
OTHER_DEFAULTS = {"client_id", "default_offset_commit_callback", "kafka_client", "partition_assignment_strategy"}


def test_the_defaults_are_those_of_kafka_python() -> None:
    theirs, ours = kafka.KafkaConsumer.DEFAULT_CONFIG, KafkaConsumer.DEFAULT_CONFIG
    assert ours.keys() == theirs.keys()
    assert len(ours) == 65
    assert {key for key in theirs if ours[key] != theirs[key]} == OTHER_DEFAULTS
    assert [kind.name for kind in theirs["partition_assignment_strategy"]] == list(ours["partition_assignment_strategy"])


def test_what_is_exported_is_kafka_pythons_own() -> None:
    for name in kafka_errors.__all__:
        if name != "NoBrokersAvailable":
            assert getattr(kafka_api, name) is getattr(kafka.errors, name), name
    for name in ("TopicPartition", "OffsetAndMetadata", "ConsumerGroupMetadata", "ConsumerRebalanceListener"):
        assert getattr(kafka_api, name) is getattr(kafka, name), name
    assert set(kafka_api.__all__) <= set(vars(kafka_api))


def test_every_code_has_the_class_of_kafka_python() -> None:
    for code in range(-1, 128):
        assert kafka_errors.ERRORS.theirs(broker_error(code)) is kafka.errors.for_code(code)
    assert kafka_errors.ERRORS.theirs(broker_error(999)).errno == 999  # type: ignore[attr-defined]


def test_classes_for_those_without_kafka_python_are_like_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module is run again as it is where kafka cannot be imported."""
    monkeypatch.setattr("fastfetch.adapters.errors.importlib.import_module", missing)
    alone: dict[str, Any] = {"__name__": "alone"}
    exec(compile(Path(kafka_errors.__file__).read_text(), "errors.py", "exec", dont_inherit=True), alone)
    compared = 0
    for name in kafka_errors.__all__:
        theirs = getattr(kafka.errors, name, None)
        if not inspect.isclass(theirs):
            continue
        ours = alone[name]
        assert ours is not theirs
        assert [kind.__name__ for kind in ours.__mro__] == [kind.__name__ for kind in theirs.__mro__], name
        for attribute in ("errno", "retriable", "invalid_metadata"):
            assert getattr(ours, attribute, None) == getattr(theirs, attribute, None), (name, attribute)
        if name != "LogTruncationError":
            assert str(ours("told")) == str(theirs("told"))
        compared += 1
    assert compared > 30
    assert alone["for_code"](25) is alone["UnknownMemberIdError"]
    assert (alone["for_code"](999).errno, alone["for_code"](999).__mro__[1]) == (999, alone["UnknownError"])


def missing(name: str) -> Any:
    raise ImportError(name)


# ----------------------------------------------------------------------------------------------------------------- the table

PAGE = (Path(__file__).parents[2] / "docs" / "kafka-api.md").read_text()
ROWS = dict(re.findall(r"^\| `(\w+)[^`]*` \| (\w+)", PAGE, re.MULTILINE))
ROWS_OF_KEYS = {*KafkaConsumer.DEFAULT_CONFIG, *kafka_settings._IDLE}
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_examples_of_the_page_run(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(EXAMPLES) == 2
    for example in EXAMPLES:
        names: dict[str, Any] = {"SERVERS": broker.bootstrap_servers}
        exec(compile(example, "kafka-api.md", "exec"), names)
    assert names["total"] == 45
    assert capsys.readouterr().out == ""
    assert [(at.offset, at.metadata) for at in broker.committed("billing").values()] == [(10, "done")]


def test_the_page_has_a_row_for_every_method_and_key() -> None:
    constants = {name for name in vars(kafka.KafkaConsumer) if name.isupper()}
    wanted = {*METHODS, *kafka.KafkaConsumer.DEFAULT_CONFIG, *kafka_settings._IDLE, *constants, "_client"}
    assert wanted == ROWS.keys()
    assert set(ROWS.values()) == {"same", "differs", "absent", "idle", "refused"}
    assert {name for name, said in ROWS.items() if said == "absent"} == wanted - vars(KafkaConsumer).keys() - {*ROWS_OF_KEYS}


def test_the_page_says_which_keys_do_nothing_and_which_are_refused() -> None:
    assert {key for key, said in ROWS.items() if said == "idle"} == kafka_settings._IDLE.keys()
    refused = {key for key, said in ROWS.items() if said == "refused"}
    assert {"proxy_url", "socks5_proxy"} <= refused
    assert all(key.startswith(("ssl_", "sasl_", "proxy", "socks5", "security_")) for key in refused)


# ------------------------------------------------------------------------------------------------------------- configuration


def test_keys_reach_the_engine(broker: Broker) -> None:
    given = {
        "client_id": "me", "client_rack": "r1", "group_id": "g", "group_instance_id": "i-1", "fetch_max_wait_ms": 11,
        "fetch_min_bytes": 12, "fetch_max_bytes": 13_000, "max_partition_fetch_bytes": 14_000, "request_timeout_ms": 15_000,
        "retry_backoff_ms": 16, "reconnect_backoff_ms": 17, "reconnect_backoff_max_ms": 18, "enable_auto_commit": False,
        "auto_commit_interval_ms": 19, "check_crcs": False, "isolation_level": "read_committed",
        "allow_auto_create_topics": False, "metadata_max_age_ms": 20_000, "max_poll_records": 21,
        "max_poll_interval_ms": 22_000, "session_timeout_ms": 23_000, "heartbeat_interval_ms": 2_400,
        "receive_buffer_bytes": 25_000, "send_buffer_bytes": 26_000, "receive_message_max_bytes": 27_000_000,
        "connections_max_idle_ms": 28_000, "exclude_internal_topics": False, "auto_offset_reset": "latest",
        "security_protocol": "PLAINTEXT",
    }  # fmt: skip
    with consumer(broker, **given) as reader:
        config = reader._reader.config
        assert {key: getattr(config, key) for key in given} == given
        assert config.partition_assignment_strategy == ("range", "roundrobin")


def test_what_is_not_given_is_as_in_kafka_python(broker: Broker) -> None:
    with KafkaConsumer(bootstrap_servers=broker.bootstrap_servers) as reader:
        config = reader._reader.config
        defaults = KafkaConsumer.DEFAULT_CONFIG
        compared = 0
        for key in defaults.keys() - {"bootstrap_servers", "enable_auto_commit", "receive_buffer_bytes", "send_buffer_bytes"}:
            if hasattr(config, key):
                assert getattr(config, key) == defaults[key], key
                compared += 1
        assert compared > 20
        assert config.receive_buffer_bytes == config.send_buffer_bytes == -1
        assert reader.config["auto_offset_reset"] == "latest"
        assert reader.config["enable_auto_commit"] is False


@pytest.mark.parametrize("key", sorted(kafka_settings._IDLE))
def test_a_key_without_effect_is_accepted_and_said_once(broker: Broker, key: str, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        consumer(broker, **{key: KafkaConsumer.DEFAULT_CONFIG.get(key, 1)}).close()
    said = [record.getMessage() for record in caplog.records if f"{key} has no effect" in record.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("KafkaConsumer")


def test_the_defaults_of_kafka_python_can_be_given(broker: Broker) -> None:
    given = {**kafka.KafkaConsumer.DEFAULT_CONFIG, "bootstrap_servers": broker.bootstrap_servers, "auto_offset_reset": "earliest"}
    with KafkaConsumer("orders", **given) as reader:
        assert len(read(reader, 10)) == 10


def test_nothing_is_said_of_what_was_not_given(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    consumer(broker, enable_auto_commit=True, consumer_timeout_ms=5, metrics_enabled=True).close()
    assert "has no effect" not in caplog.text


@pytest.mark.parametrize(
    ("configs", "said"),
    [
        ({"acks": "all", "linger_ms": 5}, "acks, linger_ms: for a producer; a consumer has no use for it"),
        ({"value_serializer": bytes}, "value_serializer: for a producer"),
        ({"proxy_url": "socks5://h:1"}, "proxy_url: connecting through a proxy is not in this version"),
        ({"socks5_proxy": "socks5://h:1"}, "socks5_proxy: connecting through a proxy"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, "security_protocol=SASL_SSL is not in this version"),
        ({"bogus": 1}, "Unrecognized configs: bogus"),
        ({"group_id": "g", "group_instance_id": ".."}, "group_instance_id must be"),
        ({"group_id": "g", "group_instance_id": "a b"}, "group_instance_id must be"),
        ({"max_partition_fetch_bytes": 0}, "max_partition_fetch_bytes must be from 1"),
        ({"bootstrap_servers": []}, "bootstrap_servers is empty"),
    ],
)
def test_a_wrong_configuration_says_what_is_wrong(configs: dict[str, Any], said: str) -> None:
    with pytest.raises(kafka.errors.KafkaConfigurationError, match=re.escape(said)) as caught:
        KafkaConsumer(**configs)
    assert isinstance(caught.value, fastfetch.errors.ConfigError)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("localhost", [("localhost", 9092)]),
        ("a:1, b", [("a", 1), ("b", 9092)]),
        (["a:1", "PLAINTEXT://b:2"], [("a", 1), ("b", 2)]),
        ("[::1]", [("::1", 9092)]),
        ("::1", [("::1", 9092)]),
        ("[::1]:3", [("::1", 3)]),
    ],
)
def test_addresses(given: Any, meant: Any) -> None:
    configs = {"bootstrap_servers": given, "api_version": (2, 0)}
    with KafkaConsumer(**configs) as reader:
        assert list(reader._reader.config.bootstrap_servers) == meant


@pytest.mark.parametrize(
    ("given", "meant"),
    [("earliest", "earliest"), ("LATEST", "latest"), ("smallest", "earliest"), ("largest", "latest"), ("whatever", "none")],
)
def test_reset_policies(broker: Broker, given: str, meant: str) -> None:
    with consumer(broker, auto_offset_reset=given) as reader:
        assert reader._reader.config.auto_offset_reset == reader.config["auto_offset_reset"] == meant


@pytest.mark.parametrize("level", ["read_committed", kafka.IsolationLevel.READ_COMMITTED, 1])
def test_isolation_levels(broker: Broker, level: Any) -> None:
    with consumer(broker, isolation_level=level) as reader:
        assert reader._reader.config.isolation_level == "read_committed"


def test_assignors_of_kafka_python_are_those_of_their_names(broker: Broker) -> None:
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    class Ours(Assignor):
        name = "ours"

        def assign(self, cluster: Any, subscriptions: Any) -> Any:
            return {}

    given = [StickyPartitionAssignor, CooperativeStickyAssignor(), "roundrobin", RangePartitionAssignor]
    with consumer(broker, partition_assignment_strategy=given[:1] + given[2:]) as reader:
        assert reader._reader.config.partition_assignment_strategy == ("sticky", "roundrobin", "range")
    with consumer(broker, partition_assignment_strategy=[given[1]]) as reader:
        assert reader._reader.config.partition_assignment_strategy == ("cooperative-sticky",)
    with consumer(broker, partition_assignment_strategy=[Ours]) as reader:
        assert reader._reader.config.partition_assignment_strategy == (Ours,)


def test_an_assignor_made_for_kafka_python_is_refused() -> None:
    from kafka.coordinator.assignors.range import RangePartitionAssignor

    class Own(RangePartitionAssignor):  # type: ignore[misc]
        name = "own"

    with pytest.raises(kafka.errors.KafkaConfigurationError, match="make it a subclass of"):
        KafkaConsumer(partition_assignment_strategy=[Own])


# ----------------------------------------------------------------------------------------------------------------- no broker


def test_no_broker_is_an_error_of_the_constructor() -> None:
    begun = time.monotonic()
    with pytest.raises(kafka_api.NoBrokersAvailable) as caught:
        KafkaConsumer("orders", bootstrap_servers="127.0.0.1:9", bootstrap_timeout_ms=300)
    assert 0.2 < time.monotonic() - begun < 5
    for kind in (kafka.errors.KafkaTimeoutError, kafka.errors.KafkaError, fastfetch.errors.ConnectionFailedError):
        assert isinstance(caught.value, kind)
    assert "127.0.0.1:9" in str(caught.value)
    until(lambda: not [thread for thread in threading.enumerate() if thread.name == "fastfetch-fastfetch"])


def test_with_an_api_version_brokers_are_looked_for_later() -> None:
    with KafkaConsumer("orders", bootstrap_servers="127.0.0.1:9", api_version=(2, 8)) as reader:
        assert not reader.bootstrap_connected()
        with pytest.raises(kafka.errors.KafkaTimeoutError):
            reader.bootstrap(timeout_ms=200)
        assert reader.poll(timeout_ms=100) == {}


def test_with_an_api_version_a_broker_may_come_later(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    broker.kill_node(1)
    with consumer(broker, "orders", api_version=(2, 8), reconnect_backoff_max_ms=50) as reader:
        assert reader.poll(timeout_ms=200) == {}
        assert "no broker could be reached" in caplog.text
        broker.restart_node(1)
        assert len(read(reader, 10)) == 10


@pytest.mark.parametrize("asked", ["position", "poll", "seek", "seek_to_beginning"])
def test_a_commit_does_not_move_a_position_that_somebody_asked_for(broker: Broker, asked: str) -> None:
    with consumer(broker, group_id="g", max_poll_records=1) as reader:
        reader.assign([P0])
        if asked == "position":
            assert reader.position(P0) == 0
        elif asked == "poll":
            assert len(read(reader, 1)) == 1
        elif asked == "seek":
            reader.seek(P0, 0)
        else:
            reader.seek_to_beginning()
        reader.commit({P0: OffsetAndMetadata(7, "", -1)})
        assert reader.position(P0) == (1 if asked == "poll" else 0)


def test_bootstrap_anew(broker: Broker) -> None:
    with consumer(broker) as reader:
        assert reader.bootstrap_connected()
        asked = len(broker.requests("Metadata"))
        reader.bootstrap(timeout_ms=5000)
        assert len(broker.requests("Metadata")) == asked
        reader.bootstrap(timeout_ms=5000, refresh=True)
        assert len(broker.requests("Metadata")) == asked + 1


# -------------------------------------------------------------------------------------------------------------------- errors


def test_errors_are_caught_by_either_package(broker: Broker) -> None:
    with consumer(broker) as reader:
        for kind in (kafka.errors.IllegalStateError, kafka.errors.KafkaError, fastfetch.errors.UsageError, FastFetchError):
            with pytest.raises(kind):
                reader.position(P0)
        for kind in (ValueError, FastFetchError):
            with pytest.raises(kind):
                reader.seek(P0, -1)


def test_a_refused_commit_is_what_its_code_says() -> None:
    tp = fastfetch.TopicPartition("orders", 0)

    def kind(*codes: int) -> str:
        failed = {fastfetch.TopicPartition("orders", p): code for p, code in enumerate(codes)}
        return type(kafka_errors.ERRORS.both(CommitFailedError("refused", failed=failed))).__name__

    assert kind(30) == "GroupAuthorizationFailedError"
    assert kind(12, 12) == "OffsetMetadataTooLargeError"
    assert [kind(code) for code in (0, 22, 25, 27)] == ["CommitFailedError"] * 4
    assert kind(29, 12) == kind() == "CommitFailedError"
    error = kafka_errors.ERRORS.both(
        LogTruncationError("cut", topic="orders", partition=0, divergent_offset=7, divergent_epoch=2)
    )
    assert isinstance(error, kafka.errors.LogTruncationError)
    assert error.divergent_offsets == {tp: (7, "", 2)}


def test_a_coordinator_that_refuses(broker: Broker) -> None:
    broker.on("OffsetCommit", faults.error(30), times=None)
    with consumer(broker, group_id="g", enable_auto_commit=False) as reader:
        reader.assign([P0])
        read(reader, 10)
        with pytest.raises(kafka.errors.GroupAuthorizationFailedError) as caught:
            reader.commit()
        assert isinstance(caught.value, GroupAuthorizationError)
        assert caught.value.code == 30
        told: list[Any] = []
        future = reader.commit_async(callback=lambda offsets, response: told.append((offsets, response)))
        future.add_errback(lambda what, error: told.append((what, error)), "said").add_callback(told.append)
        until(lambda: bool(reader.poll(timeout_ms=20)) or len(told) == 2)
        assert future.failed()
        assert not future.retriable()
        assert told[0][0] == {P0: (10, "", 0)}
        assert isinstance(told[0][1], kafka.errors.GroupAuthorizationFailedError)
        assert told[1] == ("said", future.exception)


# --------------------------------------------------------------------------------------------------------------- small parts


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("orders", ["orders", "orders-eu"]),
        ("^orders$", ["orders"]),
        ("a|orders", ["orders", "orders-eu", "a-1"]),
        ("(?i)ORDERS", ["orders", "orders-eu"]),
        ("ORDERS(?#comment)", []),
        ("(?x) orders  # all of them", ["orders", "orders-eu"]),
        ("(or)d", ["orders", "orders-eu"]),
        (re.compile("ORDERS$", re.IGNORECASE), ["orders"]),
        (".*eu", ["orders-eu"]),
    ],
)
def test_patterns_are_matched_from_the_beginning(pattern: Any, names: list[str]) -> None:
    whole = whole_name(pattern)
    topics = ["orders", "orders-eu", "a-1", "my-orders"]
    assert [name for name in topics if re.fullmatch(whole, name)] == names
    assert [name for name in topics if re.match(pattern, name)] == names


def test_deserializers_of_all_kinds() -> None:
    class Old:
        def deserialize(self, topic: str, data: bytes) -> Any:
            return topic, data

    class New:
        def deserialize(self, topic: str, headers: Any, data: bytes) -> Any:
            return topic, headers, data

    for given, expected in ((Old(), ("t", b"1")), (New(), ("t", [], b"1")), (int, 1)):
        found = deserializer(given)
        assert found is not None
        assert found("t", [], b"1") == expected
    assert deserializer(None) is None


@pytest.mark.parametrize(
    ("value", "is_tracked"), [(None, False), (int, False), (bytes.decode, False), (lambda data: [data], True)]
)
def test_the_garbage_collector_looks_at_what_may_be_part_of_a_circle(broker: Broker, value: Any, is_tracked: bool) -> None:
    with consumer(broker, "orders", value_deserializer=value) as reader:
        assert {gc.is_tracked(record) for record in read(reader, 10)} == {is_tracked}


def test_a_type_error_of_a_deserializer_is_its_own(broker: Broker) -> None:
    """It is not tried again with other arguments, as kafka-python does."""

    class Wrong:
        def deserialize(self, topic: str, headers: Any, data: bytes) -> Any:
            raise TypeError("from inside")

    with consumer(broker, "orders", value_deserializer=Wrong()) as reader, pytest.raises(TypeError, match="from inside"):
        read(reader, 1)


def test_a_deserializer_cannot_end_a_loop_without_a_word(broker: Broker) -> None:
    def value(data: bytes) -> None:
        raise StopIteration

    with consumer(broker, "orders", value_deserializer=value, consumer_timeout_ms=500) as reader:
        for call in (lambda: list(reader), lambda: read(reader, 1)):
            with pytest.raises(RuntimeError, match="StopIteration"):
                call()


def test_iteration_stops_before_what_a_deserializer_refuses_and_goes_on_after_a_seek(broker: Broker) -> None:
    def value(data: bytes) -> int:
        if data == b"6":
            raise ZeroDivisionError
        return int(data)

    with consumer(broker, value_deserializer=value, group_id="g", consumer_timeout_ms=500) as reader:
        reader.assign([P0])
        seen = []
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                seen += [record.value for record in reader]
            assert reader.position(P0) == 6
        reader.seek(P0, 7)
        assert [record.value for record in reader] == [7, 8, 9]
        reader.seek(P0, 0)
        assert [record.value for record in read(reader, 6)] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("call", ["poll", "next"])
def test_an_interrupt_at_every_point_loses_and_repeats_nothing(call: str) -> None:
    def some(reader: KafkaConsumer) -> list[int]:
        if call == "next":
            record = next(reader)
            return [record.offset]
        polled = reader.poll(0, 4)
        return [record.offset for record in polled.get(P0, [])]

    with Broker() as broker:
        broker.create_topic("orders")
        for _ in range(4):
            broker.append("orders", 0, encode_batch([b"1"] * 3))
        with consumer(broker, max_partition_fetch_bytes=1, value_deserializer=int) as reader:
            reader.assign([P0])
            for start in (0, 2):
                at = points = 0
                while at <= points:
                    at += 1
                    reader.seek(P0, start)
                    state = reader._reader._engine.subscription.get(fastfetch.TopicPartition(*P0), "test")
                    until(lambda: state.chunks and state.chunks[-1].next_offset == 12)  # noqa: B023
                    got: list[int] = []
                    with suppress(Interrupt), EveryPoint(at) as interrupt:
                        got = some(reader)
                    if interrupt.has_raised:
                        points = at
                        assert got == []
                    while reader.position(P0) < 12:
                        got += some(reader)
                    assert got == list(range(start, 12)), f"point {at}"
                assert points >= 15, "the points were not found"


def test_a_second_thread_is_told(broker: Broker) -> None:
    raised: list[Exception] = []

    def other() -> None:
        try:
            reader.assignment()
        except FastFetchError as error:
            raised.append(error)

    with consumer(broker, "orders", auto_offset_reset="latest") as reader:
        polling = threading.Thread(target=lambda: reader.poll(timeout_ms=1500))
        polling.start()
        time.sleep(0.3)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        polling.join()
    assert isinstance(raised[0], kafka.errors.IllegalStateError)
    assert "another thread" in str(raised[0])


@pytest.mark.parametrize("where", ["another thread", "a signal handler"])
@pytest.mark.parametrize("form", ["poll", "iteration"])
def test_closing_a_consumer_that_waits_ends_the_wait(broker: Broker, form: str, where: str) -> None:
    """The way in which many scripts are stopped: a handler closes the consumer, and the loop ends."""
    reader = consumer(broker, "orders")
    read(reader, 10)
    if where == "another thread":
        timer = threading.Timer(0.3, reader.close)
        timer.start()
    else:
        before = signal.signal(signal.SIGALRM, lambda *_: reader.close())
        signal.setitimer(signal.ITIMER_REAL, 0.3)
    begun = time.monotonic()
    try:
        assert not (reader.poll(timeout_ms=20_000) if form == "poll" else list(reader))
    finally:
        if where == "another thread":
            timer.join()
        else:
            signal.signal(signal.SIGALRM, before)
    assert 0.2 < time.monotonic() - begun < 10
    with pytest.raises(kafka.errors.IllegalStateError):
        reader.poll()


# ----------------------------------------------------------------------------------------------------------------- listeners


def test_listeners_may_have_some_of_the_methods(broker: Broker) -> None:
    events = []

    class Partial:
        def on_partitions_assigned(self, assigned: Any) -> None:
            events.append(assigned)

    with consumer(broker, group_id="g") as reader:
        reader.subscribe(["orders"], listener=Partial())
        read(reader, 10)
    assert events == [{P0}]


@pytest.mark.parametrize("in_a_loop", [False, True])
def test_listeners_with_coroutines_are_awaited(broker: Broker, in_a_loop: bool) -> None:
    events = []

    class Slow(kafka_api.AsyncConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            await asyncio.sleep(0.01)
            events.append("revoked")

        async def on_partitions_assigned(self, assigned: Any) -> None:
            await asyncio.sleep(0.01)
            events.append("assigned")

    def script() -> None:
        with consumer(broker, group_id="g") as reader:
            reader.subscribe(["orders"], listener=Slow())
            read(reader, 10)

    async def looping() -> None:
        script()

    asyncio.run(looping()) if in_a_loop else script()
    assert events == ["assigned", "revoked"]


def test_what_a_listener_raises_comes_out_of_the_poll_and_reading_goes_on(broker: Broker) -> None:
    class Failing(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            return None

        def on_partitions_assigned(self, assigned: Any) -> None:
            raise ZeroDivisionError

    with consumer(broker, group_id="g") as reader:
        reader.subscribe(["orders"], listener=Failing())
        with pytest.raises(kafka.errors.KafkaError, match="User rebalance callback throws an error") as caught:
            read(reader, 1)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert len(read(reader, 10)) == 10


def test_a_listener_may_commit_what_it_gives_up(broker: Broker) -> None:
    class Committing(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            reader.commit({tp: OffsetAndMetadata(4, "", -1) for tp in revoked})

        def on_partitions_assigned(self, assigned: Any) -> None:
            return None

    with consumer(broker, group_id="g", enable_auto_commit=False) as reader:
        reader.subscribe(["orders"], listener=Committing())
        read(reader, 10)
    assert [at.offset for at in broker.committed("g").values()] == [4]


# ------------------------------------------------------------------------------------------------------------------- metrics


def test_metrics(broker: Broker) -> None:
    with consumer(broker, "orders") as reader:
        read(reader, 10)
        metrics, raw = reader.metrics(), reader.metrics(raw=True)
    assert metrics is not None
    assert raw is not None
    assert metrics["consumer-fetch-manager-metrics"]["records-consumed-total"] == raw["records"] == 10
    assert metrics["consumer-metrics"]["connection-count"] >= 1
    with consumer(broker, metrics_enabled=False) as reader:
        assert reader.metrics() is None


@pytest.mark.parametrize("timeout_ms", [0, 0.5, 50.5, float("inf")])
def test_timeouts_may_be_fractions_and_infinite(broker: Broker, timeout_ms: float) -> None:
    with consumer(broker, "orders") as reader:
        read(reader, 1)
        reader.seek_to_beginning()
        found: Callable[[], object] = lambda: reader.poll(timeout_ms=timeout_ms)  # noqa: E731
        until(lambda: bool(found()))
        assert reader.position(P0, timeout_ms=max(timeout_ms, 100)) == 10
        assert reader.beginning_offsets([P0], timeout_ms=max(timeout_ms, 5000)) == {P0: 0}
