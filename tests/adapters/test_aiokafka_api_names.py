"""aiokafka's names: all of them are here, docs/aiokafka-api.md tells of each, and none of it needs aiokafka."""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import inspect
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.abc
import aiokafka.errors
import pytest

from fastfetch import errors as ours
from fastfetch.adapters import aiokafka_api
from fastfetch.adapters.aiokafka_api.errors import TRANSLATION
from fastfetch.testing import Broker, encode_batch

THEIRS, OURS = aiokafka.AIOKafkaConsumer, aiokafka_api.AIOKafkaConsumer
PAGE = Path(__file__).parents[2] / "docs" / "aiokafka-api.md"
ASYNC_MANNERS = {"__aiter__", "__anext__", "__aenter__", "__aexit__"}


def methods(kind: type) -> dict[str, Any]:
    found = {name: each for name, each in vars(kind).items() if callable(each)}
    return {name: each for name, each in found.items() if not name.startswith("_") or name in ASYNC_MANNERS}


def shape(function: Any) -> list[tuple[str, Any, Any]]:
    """Names, kinds and defaults of parameters."""
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


def test_every_method_has_their_signature() -> None:
    assert methods(OURS).keys() == methods(THEIRS).keys()
    for name, theirs in methods(THEIRS).items():
        mine = methods(OURS)[name]
        assert inspect.iscoroutinefunction(mine) == inspect.iscoroutinefunction(theirs), name
        if name != "__aexit__":  # only the interpreter calls it
            assert shape(mine) == shape(theirs), name


def test_every_key_of_the_constructor_has_their_default() -> None:
    theirs, mine = shape(THEIRS.__init__), shape(OURS.__init__)
    others = {"client_id": "fastfetch", "partition_assignment_strategy": ("roundrobin",)}
    assert mine == [(name, kind, others.get(name, default)) for name, kind, default in theirs]


def rows(heading: str) -> dict[str, list[str]]:
    """A table of the page, by the first column."""
    section = PAGE.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("| `")]
    return {row[0].strip("`"): row[1:] for row in cells}


def test_the_page_tells_of_every_method() -> None:
    table = rows("Methods")
    assert table.keys() == methods(THEIRS).keys()
    for name, (here, how) in table.items():
        assert here in ("same", "differs"), name
        assert how or here == "same", f"{name}: how does it differ?"


def test_the_page_tells_of_every_key_and_its_default() -> None:
    table = rows("Settings")
    mine = {name: default for name, kind, default in shape(OURS.__init__) if kind is inspect.Parameter.KEYWORD_ONLY}
    assert list(table) == list(mine)
    for name, (default, here, how) in table.items():
        assert eval(default) == mine[name], name
        assert here in ("same", "differs", "no effect", "absent"), name
        assert how or here == "same" or name.startswith("sasl_"), f"{name}: why?"


def test_the_example_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    [code] = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    example = compile(code, PAGE.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def main(servers: str) -> None:
        with pytest.raises(TimeoutError):  # it goes on for ever
            async with asyncio.timeout(1):
                await eval(example, {"SERVERS": servers})

    with Broker() as broker:
        broker.create_topic("orders")
        broker.append("orders", 0, encode_batch([(b"k", b"v", 5), (None, b"w", 6)]))
        asyncio.run(main(broker.bootstrap_servers))
        assert capsys.readouterr().out.splitlines() == ["orders 0 0 b'k' b'v' 5", "orders 0 1 None b'w' 6"]
        assert broker.committed("billing")[aiokafka.TopicPartition("orders", 0)].offset == 2


def test_what_is_imported_with_it_is_theirs() -> None:
    for name in ("ConsumerRecord", "TopicPartition", "OffsetAndMetadata", "OffsetAndTimestamp", "ConsumerRebalanceListener"):
        assert getattr(aiokafka_api, name) is getattr(aiokafka, name)
    assert set(aiokafka_api.__all__) >= set(aiokafka.__all__) - {"AIOKafkaProducer", "AIOKafkaClient"}
    for name in aiokafka.errors.__all__:
        assert getattr(aiokafka_api.errors, name) is getattr(aiokafka.errors, name)
    with pytest.raises(AttributeError):
        _ = aiokafka_api.errors.NoSuchError


def public_errors() -> list[type[ours.FastFetchError]]:
    found = [getattr(ours, name) for name in ours.__all__]
    return [kind for kind in found if isinstance(kind, type) and issubclass(kind, ours.FastFetchError)]


@pytest.mark.parametrize("kind", public_errors())
def test_every_error_is_one_of_theirs_too(kind: type[ours.FastFetchError]) -> None:
    error = kind("what happened")
    both = TRANSLATION.both(error)
    assert isinstance(both, kind)
    assert type(both).__name__ in vars(aiokafka.errors)
    assert "what happened" in str(both)
    again = pickle.loads(pickle.dumps(both))
    assert (type(again), str(again)) == (type(both), str(both))


@pytest.mark.parametrize("code", [*range(-1, 73), 79, 100])
def test_codes_lead_to_their_classes(code: int) -> None:
    both = TRANSLATION.both(ours.BrokerError("told", code=code))
    assert isinstance(both, aiokafka.errors.for_code(code))
    assert (both.code, both.errno) == (code, aiokafka.errors.for_code(code).errno)  # type: ignore[attr-defined]


WITHOUT = """
import asyncio, dataclasses, inspect, sys
sys.modules["aiokafka"] = None
from fastfetch.adapters import aiokafka_api as api
from fastfetch.adapters.aiokafka_api import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition, errors
import fastfetch

class Listener(ConsumerRebalanceListener):
    async def on_partitions_revoked(self, revoked):
        print("revoked", sorted(revoked))
    def on_partitions_assigned(self, assigned):
        print("assigned", sorted(assigned))

async def main(servers):
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest")
    consumer.subscribe(["t"], listener=Listener())
    async with consumer:
        record = await consumer.getone()
        assert type(record) is ConsumerRecord and ConsumerRecord.__module__.startswith("fastfetch")
        print(record)
        await consumer.commit({TopicPartition("t", 0): (1, "why")})
        print(await consumer.committed(TopicPartition("t", 0)), await consumer.end_offsets([("t", 0)]))
        for kind in (errors.IllegalStateError, errors.KafkaError, fastfetch.errors.UsageError):
            try:
                consumer.seek(TopicPartition("t", 5), 0)
            except kind as error:
                print(type(error).__module__, error)
        error = errors.TRANSLATION.both(fastfetch.errors.broker_error(29, "told"))
        assert isinstance(error, errors.TopicAuthorizationFailedError) and isinstance(error, errors.BrokerResponseError)
        print(error, error.errno, error.message)
    try:
        await consumer.getone()
    except api.ConsumerStoppedError as error:
        print(error)
    try:
        ConsumerRebalanceListener()
    except TypeError:
        print("abstract")
    print([(f.name, f.type) for f in dataclasses.fields(ConsumerRecord)][0], ConsumerRecord[str, bytes])
    assert not any(name.split(".")[0] == "aiokafka" and module for name, module in sys.modules.items())

asyncio.run(main(sys.argv[1]))
"""


def test_without_aiokafka() -> None:
    with Broker() as broker:
        broker.create_topic("t")
        broker.append("t", 0, encode_batch([(b"k", b"v", 5, [("h", b"1")])]))
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT, broker.bootstrap_servers], check=False, capture_output=True, text=True, timeout=60
        )
    assert done.returncode == 0, done.stderr
    partition = "TopicPartition(topic='t', partition=0)"
    seek = "seek: t-5 is not assigned to this consumer (assigned: t-0); its group gave it to nobody, or to another"
    assert done.stdout.splitlines() == [
        "revoked []",
        f"assigned [{partition}]",
        (
            "ConsumerRecord(topic='t', partition=0, offset=0, timestamp=5, timestamp_type=0, key=b'k', value=b'v', "
            "checksum=None, serialized_key_size=1, serialized_value_size=1, headers=(('h', b'1'),))"
        ),
        f"1 {{{partition}: 1}}",
        *[f"fastfetch.adapters.aiokafka_api.errors IllegalStateError: {seek}"] * 3,
        "[Error 29] TopicAuthorizationFailedError: told: TOPIC_AUTHORIZATION_FAILED (code 29) 29 TOPIC_AUTHORIZATION_FAILED",
        "getone: the consumer was stopped",
        "abstract",
        "('topic', 'str') fastfetch.adapters.aiokafka_api.structs.ConsumerRecord[str, bytes]",
    ]


def test_the_classes_of_our_own_have_their_fields() -> None:
    """As they are without aiokafka."""
    code = (
        "import sys, dataclasses; sys.modules['aiokafka'] = None\n"
        "from fastfetch.adapters.aiokafka_api import errors as e, structs as s\n"
        "print([f.name for f in dataclasses.fields(s.ConsumerRecord)])\n"
        "print(*(k._fields for k in (s.TopicPartition, s.OffsetAndMetadata, s.OffsetAndTimestamp)))\n"
        "print(*(f'{name}={getattr(e, name).errno}' for name in e._NAMES))\n"
        "own = [k for k in vars(e).values() if isinstance(k, type) and issubclass(k, Exception)]\n"
        "print(*(k.__name__ for k in own if k.__module__ == e.__name__))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout.splitlines()
    assert told[0] == str([field.name for field in dataclasses.fields(aiokafka.ConsumerRecord)])
    structs = (aiokafka.TopicPartition, aiokafka.OffsetAndMetadata, aiokafka.OffsetAndTimestamp)
    assert told[1] == " ".join(str(kind._fields) for kind in structs)
    for name, code in re.findall(r"(\w+)=(-?\d+)", told[2]):
        assert getattr(aiokafka.errors, name).errno == int(code)
    for name in told[3].split():
        theirs = getattr(aiokafka.errors, name)
        assert theirs.__name__ == name, "not an alias"
