"""The consumer protocol (KIP-848) at real brokers, with the same account as the classic one: members come and go, die, sleep, are
fenced, and share with other clients."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic, ResourceType

import fastfetch
from fastfetch import TopicPartition
from tests.live.conftest import SECONDS, Kafka, Sent, wait_for
from tests.live.groups import LONG_SESSION_MS, SESSION_MS, SETTINGS, Group, Member
from tests.live.history import Load

PARTITIONS = 6


def hasten(kafka: Kafka, group: str, session_ms: int = SESSION_MS) -> None:
    """The broker decides about a group's heartbeats and session here, and no client may ask for others."""
    asked = {"consumer.heartbeat.interval.ms": SETTINGS["heartbeat_ms"], "consumer.session.timeout.ms": session_ms}
    entries = [ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET) for name, value in asked.items()]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    kafka.admin.incremental_alter_configs([resource])[resource].result(SECONDS)


def epochs(kafka: Kafka, folder: Path, topics: dict[str, int], /, *, session_ms: int = SESSION_MS, **settings: Any) -> Group:
    group = Group(kafka, folder, topics, protocol="consumer", **settings)
    hasten(kafka, group.name, session_ms)
    return group


@pytest.mark.parametrize("client", ["fastfetch", "async"])
@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_come_and_go(kafka: Kafka, tmp_path: Path, client: str, assignor: str) -> None:
    """Those who stay keep reading what they keep."""
    topic = kafka.topic("come-and-go", PARTITIONS)
    with epochs(kafka, tmp_path, {topic: PARTITIONS}, config={"group_remote_assignor": assignor}) as group:
        with Load(kafka, topic, PARTITIONS) as load:
            first = group.start(client)
            group.wait_shared(first)
            second, third = group.start(client), group.start(client)
            group.wait_shared(first, second, third)
            group.wait_for_more()
            before = len(third.events)
            first.close()
            group.wait_shared(second, third)
            group.wait_for_more()
            second.close()
            group.wait_shared(third)
        group.wait_for_all(load)
        if assignor == "uniform":
            assert not third.told("revoked", "lost", after=before)
        third.close()
        assert group.check() == 0


def test_a_member_is_killed(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("killed", PARTITIONS)
    with epochs(kafka, tmp_path, {topic: PARTITIONS}) as group:
        with Load(kafka, topic, PARTITIONS) as load:
            first, second, third = group.start(), group.start(), group.start()
            group.wait_shared(first, second, third)
            group.wait_for_more()
            first.kill()
            group.wait_shared(second, third)
            group.wait_for_more()
        group.wait_for_all(load)


def test_automatic_commits(kafka: Kafka, tmp_path: Path) -> None:
    """They cover what is revoked and what is left behind by close()."""
    topic = kafka.topic("automatic", PARTITIONS)
    settings = {"auto_commit": True, "commit_every": 0, "config": {"auto_commit_interval_ms": 50}}
    with epochs(kafka, tmp_path, {topic: PARTITIONS}, **settings) as group:
        with Load(kafka, topic, PARTITIONS) as load:
            first, second = group.start(), group.start()
            group.wait_shared(first, second)
            group.wait_for_more()
            third = group.start()
            group.wait_shared(first, second, third)
            group.wait_for_more()
            first.close()
            group.wait_shared(second, third)
            group.wait_for_more()
        group.wait_for_all(load)
        assert group.check() == 0


@pytest.mark.parametrize("first_it", ["commits", "polls"])
def test_a_member_sleeps_through_its_session(kafka: Kafka, tmp_path: Path, first_it: str) -> None:
    """It wakes up with records in hand and in its buffers, and thinks that it owns their partitions."""
    topic = kafka.topic("zombie", PARTITIONS)
    with epochs(kafka, tmp_path, {topic: PARTITIONS}) as group:
        with Load(kafka, topic, PARTITIONS) as load:
            first, zombie = group.start(), group.start(commit_every=1_000_000)
            group.wait_shared(first, zombie)
            group.wait_for_more()
            owned, before = zombie.owns, len(zombie.events)
            zombie.hold()
            zombie.pause()
            group.wait_shared(first)
            group.wait_for_more()
            zombie.ask("commit" if first_it == "commits" else "go")  # as soon as it wakes up
            zombie.resume()
            if first_it == "commits":
                refused = zombie.wait_for("refused", "committed", after=before)
                assert (refused.kind, refused.told.get("error")) == ("refused", "CommitFailedError")
                zombie.go()
            assert set(zombie.wait_for("lost").partitions) == owned
            group.wait_shared(first, zombie)
            group.wait_for_more()
        woken = zombie.events[before:]
        woken = woken[[event.kind for event in woken].index("go") :]
        assert [event.kind for event in woken[:3]] == ["go", "lost", "assigned"], "handed out what it had lost"
        group.wait_for_all(load)


def test_a_member_does_not_poll_for_too_long(kafka: Kafka, tmp_path: Path) -> None:
    """Its heartbeats go on, so it has to leave by itself."""
    topic = kafka.topic("away", PARTITIONS)
    with epochs(kafka, tmp_path, {topic: PARTITIONS}, config={"max_poll_interval_ms": 2_000}) as group:
        with Load(kafka, topic, PARTITIONS) as load:
            first, away = group.start(), group.start(commit_every=1_000_000)
            group.wait_shared(first, away)
            group.wait_for_more()
            owned = away.owns
            away.hold()
            group.wait_shared(first)
            group.wait_for_more()
            refused = away.do("commit", "refused", "committed")
            assert (refused.kind, refused.told.get("error")) == ("refused", "CommitFailedError")
            away.go()
            assert set(away.wait_for("lost").partitions) == owned
            group.wait_shared(first, away)
        group.wait_for_all(load)


def test_a_static_member_comes_back(kafka: Kafka, tmp_path: Path) -> None:
    """After close() to the same partitions, and the others don't notice. Whoever comes while it is there is turned away."""
    topic = kafka.topic("static", PARTITIONS)
    with epochs(kafka, tmp_path, {topic: PARTITIONS}, session_ms=LONG_SESSION_MS) as group:
        with Load(kafka, topic, PARTITIONS) as load:
            first, second = group.start(instance="one"), group.start(instance="two")
            group.wait_shared(first, second)
            group.wait_for_more()
            owned, before = second.owns, len(first.events)
            second.close()
            third = group.start(instance="two")
            group.wait_until(lambda: third.owns == owned, f"{third} to own {owned}")
            group.wait_for_more()
            group.may_raise.add("BrokerError")
            rival = group.start(instance="two")
            raised = rival.wait_for("raised")
            assert "UNRELEASED_INSTANCE_ID" in raised.told["text"]
            group.wait_for_more()
            assert len(rival.told("raised")) == 1, "fatal is raised once"
            rival.close()
            assert not first.told("assigned", "revoked", "lost", after=before)
        group.wait_for_all(load)


def test_a_static_member_that_slept_is_fenced_by_its_successor(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("fenced", PARTITIONS)
    with epochs(kafka, tmp_path, {topic: PARTITIONS}) as group:
        with Load(kafka, topic, PARTITIONS) as load:
            first, zombie = group.start(instance="one"), group.start(instance="two", commit_every=1_000_000)
            group.wait_shared(first, zombie)
            group.wait_for_more()
            zombie.hold()
            zombie.pause()
            group.wait_shared(first)
            successor = group.start(instance="two")
            group.wait_shared(first, successor)
            zombie.resume()
            refused = zombie.do("commit", "refused", "committed")
            assert refused.kind == "refused"
            group.may_raise |= {"FencedInstanceIdError", "BrokerError"}
            zombie.go()
            # Its heartbeat is told the one; but where the commit was refused first, it has tried to join, and is told the other.
            text = zombie.wait_for("raised").told["text"]
            assert "FENCED_INSTANCE_ID" in text or "UNRELEASED_INSTANCE_ID" in text
            group.wait_for_more()
            assert len(zombie.told("raised")) == 1, "fatal is raised once"
        group.wait_for_all(load)


def test_a_topic_that_matches_is_created_later(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("pattern", 2)
    kafka.topic(f"no.{topic}")  # the whole name has to match
    with epochs(kafka, tmp_path, {topic: 2}, topics=[], pattern=f"{re.escape(topic)}.*") as group:
        first, second = group.start(), group.start()
        group.wait_shared(first, second)
        later = kafka.topic(f"{topic}.later", 2)
        group.partitions |= {TopicPartition(later, p) for p in range(2)}
        with Load(kafka, topic, 2) as old, Load(kafka, later, 2) as new:
            group.wait_shared(first, second)
            group.wait_for_more()
        group.wait_for_all(old, new)


def test_a_pattern_that_is_none(kafka: Kafka, tmp_path: Path) -> None:
    with epochs(kafka, tmp_path, {}, topics=[], pattern="(") as group:
        group.may_raise.add("BrokerError")
        raised = group.start().wait_for("raised")
        assert "INVALID_REGULAR_EXPRESSION" in raised.told["text"]


def test_an_assignor_that_is_none(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("assignor")
    with epochs(kafka, tmp_path, {topic: 1}, config={"group_remote_assignor": "mine"}) as group:
        group.may_raise.add("BrokerError")
        raised = group.start().wait_for("raised")
        assert "UNSUPPORTED_ASSIGNOR" in raised.told["text"]
        assert "uniform" in raised.told["text"], "the broker says which there are"


def test_partitions_are_added(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("growing", 2)
    with epochs(kafka, tmp_path, {topic: 2}) as group:
        first, second = group.start(), group.start()
        group.wait_shared(first, second)
        before = len(first.events), len(second.events)
        kafka.admin.create_partitions([NewPartitions(topic, 4)])[topic].result(SECONDS)
        group.partitions |= {TopicPartition(topic, p) for p in range(4)}
        group.wait_shared(first, second)
        with Load(kafka, topic, 4) as load:
            group.wait_for_more()
        group.wait_for_all(load)
        assert not first.told("revoked", "lost", after=before[0])
        assert not second.told("revoked", "lost", after=before[1])


def test_a_change_of_topics(kafka: Kafka, tmp_path: Path) -> None:
    """Each member is given partitions of what it subscribes to now."""
    one, two = kafka.topic("one", 2), kafka.topic("two", 2)
    with epochs(kafka, tmp_path, {one: 2, two: 2}, topics=[one]) as group:
        with Load(kafka, one, 2) as first_load, Load(kafka, two, 2) as second_load:
            first, second = group.start(), group.start()
            group.wait_until(lambda: first.owns and second.owns, "both to share the first topic")
            second.ask(f"subscribe {two}")
            group.wait_shared(first, second)
            assert ({tp.topic for tp in first.owns}, {tp.topic for tp in second.owns}) == ({one}, {two})
            group.wait_for_more()
        group.wait_for_all(first_load, second_load)


def test_a_topic_is_created_again(kafka: Kafka) -> None:
    """Under its name there is another one. A position in the old one is neither read on from nor committed for the new."""
    topic = kafka.topic("again", 2)
    old, new = [Sent(None, b"old %d" % n, []) for n in range(50)], [Sent(None, b"new %d" % n, []) for n in range(90)]
    settings = {
        "bootstrap_servers": kafka.servers,
        "group_id": topic,
        "group_protocol": "consumer",
        "auto_offset_reset": "earliest",
    }
    hasten(kafka, topic)
    with fastfetch.Consumer(**settings, auto_commit_interval_ms=100) as consumer:
        consumer.subscribe([topic])
        kafka.produce(topic, old)
        read(consumer, old)
        kafka.admin.delete_topics([topic])[topic].result(SECONDS)
        wait_for(lambda: topic not in kafka.admin.list_topics(timeout=SECONDS).topics, f"{topic} to be gone")
        kafka.admin.create_topics([NewTopic(topic, 2)])[topic].result(SECONDS)
        wait_for(lambda: topic in kafka.admin.list_topics(timeout=SECONDS).topics, f"{topic} to be there")
        kafka.produce(topic, new)
        read(consumer, new)
    with fastfetch.Consumer(**settings) as next_one:
        next_one.subscribe([topic])
        kafka.produce(topic, more := [Sent(None, b"more", [])])
        read(next_one, more)


def read(consumer: fastfetch.Consumer, wanted: list[Sent]) -> None:
    """Poll until these have come, and nothing but these."""
    found: list[bytes | None] = []

    def is_enough() -> bool:
        found.extend(record.value for records in consumer.poll(timeout_ms=100).values() for record in records)
        return len(found) >= len(wanted)

    wait_for(is_enough, f"{len(wanted)} records")
    assert found == [record.value for record in wanted]


@pytest.mark.parametrize("other", ["confluent", "java"])
def test_with_other_clients(kafka: Kafka, tmp_path: Path, other: str) -> None:
    topic = kafka.topic("mixed", PARTITIONS)
    with epochs(kafka, tmp_path, {topic: PARTITIONS}) as group:
        with Load(kafka, topic, PARTITIONS) as load:
            ours, theirs = group.start(), group.start(other)
            group.wait_shared(ours, theirs)
            group.wait_for_more()
            third = group.start()
            group.wait_shared(ours, theirs, third)
            group.wait_for_more()
            theirs.close()
            group.wait_shared(ours, third)
            group.wait_for_more()
            theirs = group.start(other)
            group.wait_shared(ours, theirs, third)
            ours.kill()
            group.wait_shared(theirs, third)
            third.close()
            group.wait_shared(theirs)
            group.wait_for_more()
        group.wait_for_all(load)


def test_from_classic_to_consumer_without_a_stop(kafka: Kafka, tmp_path: Path) -> None:
    """Members of both protocols in one group, one after the other replaced (KIP-848, online migration), and back."""
    topic = kafka.topic("migrated", PARTITIONS)
    with Group(kafka, tmp_path, {topic: PARTITIONS}, strategies=["cooperative-sticky"]) as group:
        hasten(kafka, group.name)

        def wait_spread(*members: Member) -> None:
            def is_spread() -> bool:
                owned = [member.owns for member in members]
                return all(owned) and sum(map(len, owned)) == PARTITIONS and set().union(*owned) == group.partitions

            group.wait_until(is_spread, f"{members} to share the partitions")

        with Load(kafka, topic, PARTITIONS) as load:
            members = [group.start(), group.start()]
            wait_spread(*members)
            for protocol in ("consumer", "consumer", "classic", "classic"):
                members.append(group.start(protocol=protocol))
                wait_spread(*members)
                group.wait_for_more()
                members.pop(0).close()
                wait_spread(*members)
                group.wait_for_more()
        group.wait_for_all(load)
        for member in members:
            member.close()
        assert group.check() == 0
