"""What docs/confluent-api.md says of methods, classes and properties is complete, and its script runs."""

from __future__ import annotations

import ctypes
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from fastfetch.adapters import confluent_api
from fastfetch.adapters.confluent_api import Consumer, KafkaException, settings
from fastfetch.testing import Broker, encode_batch

confluent_kafka = pytest.importorskip("confluent_kafka")


@pytest.fixture(scope="module")
def page(root: Path) -> str:
    return (root / "docs" / "confluent-api.md").read_text()


def section(page: str, title: str) -> str:
    [found] = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    return str(found)


def public(kind: Any) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_every_method_of_theirs_is_in_the_table_and_in_the_class(page: str) -> None:
    rows = re.findall(r"^\| (`.*?`) \| (same|differs|absent) \|(.*)\|$", section(page, "Methods of Consumer"), re.MULTILINE)
    listed = {name: (word, why) for names, word, why in rows for name in re.findall(r"[`.]?(\w+)\(", names)}
    theirs = public(confluent_kafka.Consumer)
    assert theirs <= listed.keys()
    assert public(Consumer) == theirs
    assert all(why.strip() for word, why in listed.values() if word != "same")
    for method in theirs - {"close"}:
        assert inspect.getdoc(getattr(Consumer, method)), method


def test_arguments_have_their_names() -> None:
    expected = {
        "subscribe": ["topics", "on_assign", "on_revoke", "on_lost"],
        "commit": ["message", "offsets", "asynchronous"],
        "store_offsets": ["message", "offsets"],
        "consume": ["num_messages", "timeout"],
        "poll": ["timeout"],
        "get_watermark_offsets": ["partition", "timeout", "cached"],
        "offsets_for_times": ["partitions", "timeout"],
        "committed": ["partitions", "timeout"],
        "list_topics": ["topic", "timeout"],
        "set_sasl_credentials": ["username", "password"],
    }
    for name, arguments in expected.items():
        assert list(inspect.signature(getattr(Consumer, name)).parameters)[1:] == arguments
        for argument in arguments:
            assert argument in (getattr(confluent_kafka.Consumer, name).__doc__ or "")


@pytest.mark.parametrize("name", ["Message", "TopicPartition", "KafkaError"])
def test_every_attribute_of_their_classes_is_there(name: str) -> None:
    assert public(getattr(confluent_kafka, name)) <= public(getattr(confluent_api, name))


def test_constants_have_their_values() -> None:
    names = [name for name in vars(confluent_kafka) if name.startswith(("OFFSET_", "TIMESTAMP_"))]
    assert len(names) == 7
    for name in names:
        assert name in confluent_api.__all__
        assert getattr(confluent_api, name) == getattr(confluent_kafka, name)


def properties(tmp_path: Path) -> dict[str, str]:
    """librdkafka's own list of properties: C of consumers, P of producers, * of both."""
    found = list(Path(confluent_kafka.__file__).parent.parent.glob("confluent_kafka.libs/librdkafka*.so*"))
    if not found:
        pytest.skip("this confluent-kafka has no librdkafka of its own to ask")
    library, libc = ctypes.CDLL(str(found[0])), ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    listed = tmp_path / "properties"
    file = ctypes.c_void_p(libc.fopen(str(listed).encode(), b"w"))
    library.rd_kafka_conf_properties_show(file)
    libc.fclose(file)
    return {
        key: who
        for key, who in re.findall(r"^(\S+) +\| +(\S) +\|", listed.read_text(), re.MULTILINE)
        if not key.endswith("_cb") and key not in ("opaque", "interceptors", "default_topic_conf", "msg_order_cmp")
    }


def test_every_property_of_theirs_is_known(tmp_path: Path, page: str) -> None:
    listed = properties(tmp_path)
    assert len(listed) > 150
    documented = set(re.findall(r"`([\w.]+)`", section(page, "Configuration")))
    engine, adapter = settings._ENGINE, settings._ADAPTER
    without_effect, producers = settings._WITHOUT_EFFECT, settings._PRODUCERS
    for key, who in listed.items():
        if key.startswith(settings._SECURITY):
            continue
        if who == "P":
            assert key in producers, key
        else:
            assert (key in engine) + (key in adapter) + (key in without_effect) == 1, key
            assert key in documented, key
    for key in {*engine, *adapter, *without_effect}:
        assert key in documented, key


def test_the_script_runs(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    [script] = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "consumer.subscribe" in block]
    with Broker() as broker:
        broker.create_topic("orders", partitions=1)
        broker.append("orders", 0, encode_batch([b"%d" % i for i in range(10)]))
        names: dict[str, Any] = {"SERVERS": broker.bootstrap_servers}
        exec(script, names)
        assert names["total"] == 45
        assert "reading" in capsys.readouterr().out
        [stored] = broker.committed("billing").values()
        assert stored.offset == 10


def test_confluent_kafkas_producer_takes_our_group_metadata() -> None:
    """Which it reads before it does anything else."""
    with Broker() as broker, Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"}) as consumer:
        metadata = consumer.consumer_group_metadata()
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x", "log_level": 0}
        )
        seen = []
        for given in (metadata, metadata[:9]):
            with pytest.raises(confluent_kafka.KafkaException) as caught:
                producer.send_offsets_to_transaction([confluent_kafka.TopicPartition("t", 0, 1)], given, 1)
            seen.append(caught.value.args[0].code())
        # Read, and refused for want of a transaction; not read.
        assert seen == [confluent_kafka.KafkaError._STATE, confluent_kafka.KafkaError._BAD_MSG]


def test_what_is_raised_has_a_code() -> None:
    with pytest.raises(KafkaException) as caught:
        Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "nope": 1})
    assert caught.value.args[0].code() == confluent_api.KafkaError._INVALID_ARG  # type: ignore[attr-defined]
