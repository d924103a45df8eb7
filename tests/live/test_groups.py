"""Groups of ours at one broker: members come and go, die, sleep, and what they subscribe to grows.

Under load, and with the account of `groups.account`: each partition has one owner, nothing is lost or out of order, no more is
repeated than what was read since the last commit, and nothing at all where everybody leaves in good order.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from confluent_kafka.admin import NewPartitions

from fastfetch import TopicPartition
from tests.live.conftest import SECONDS, Kafka
from tests.live.groups import SESSION_MS, Group
from tests.live.history import Load, value_of

PARTITIONS = 6


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("client", ["fastfetch", "async"])
def test_members_come_and_go(kafka: Kafka, tmp_path: Path, client: str, strategy: str) -> None:
    """Those who stay take over at once, not when a session ends."""
    topic = kafka.topic("come-and-go", PARTITIONS)
    with Group(kafka, tmp_path, {topic: PARTITIONS}, strategies=[strategy]) as group:
        with Load(kafka, topic, PARTITIONS) as load:
            first = group.start(client)
            group.wait_shared(first)
            second, third = group.start(client), group.start(client)
            group.wait_shared(first, second, third)
            group.wait_for_more()
            before = len(third.events)
            first.close()  # which led the group
            group.wait_shared(second, third)
            group.wait_for_more()
            second.close()
            group.wait_shared(third)
        group.wait_for_all(load)
        gave_up = [event for event in third.told("revoked", after=before) if event.partitions]
        assert bool(gave_up) is (strategy == "range"), "a cooperative member keeps what it has"
        third.close()
        assert group.check() == 0


def test_a_member_is_killed(kafka: Kafka, tmp_path: Path) -> None:
    """The leader. Under the eager protocol: `test_automatic_commits`."""
    topic = kafka.topic("killed", PARTITIONS)
    settings = {"strategies": ["cooperative-sticky"], "session_ms": SESSION_MS}
    with Group(kafka, tmp_path, {topic: PARTITIONS}, **settings) as group:
        with Load(kafka, topic, PARTITIONS) as load:
            first = group.start()
            group.wait_shared(first)
            second, third = group.start(), group.start()
            group.wait_shared(first, second, third)
            group.wait_for_more()
            first.kill()
            group.wait_shared(second, third)
            group.wait_for_more()
        group.wait_for_all(load)


def test_automatic_commits(kafka: Kafka, tmp_path: Path) -> None:
    """They cover what is revoked and what is left behind by close(); after a kill, nothing that was not handed out."""
    topic = kafka.topic("automatic", PARTITIONS)
    settings = {"auto_commit": True, "commit_every": 0, "session_ms": SESSION_MS}
    rarely, often = {"auto_commit_interval_ms": 600_000}, {"auto_commit_interval_ms": 50}
    with Group(kafka, tmp_path, {topic: PARTITIONS}, **settings) as group:
        with Load(kafka, topic, PARTITIONS) as load:
            first, second = group.start(config=rarely), group.start(config=rarely)
            group.wait_shared(first, second)
            group.wait_for_more()
            first.close()
            group.wait_shared(second)
            third = group.start(config=often)
            group.wait_shared(second, third)
            group.wait_for_more()
            assert group.check() == 0
            third.kill()
            group.wait_shared(second)
            group.wait_for_more()
        group.wait_for_all(load)


@pytest.mark.parametrize(("strategy", "is_told"), [("range", True), ("cooperative-sticky", False)])
def test_a_member_sleeps_through_its_session(kafka: Kafka, tmp_path: Path, strategy: str, is_told: bool) -> None:
    """It wakes up with records in hand and in its buffers, and thinks that it owns their partitions. By the clock alone it has to
    know better, should nobody be there to tell it."""
    topic = kafka.topic("zombie", PARTITIONS)
    with Group(kafka, tmp_path, {topic: PARTITIONS}, strategies=[strategy], session_ms=SESSION_MS) as group:
        with Load(kafka, topic, PARTITIONS) as load:
            first, zombie = group.start(), group.start(commit_every=1_000_000)
            group.wait_shared(first, zombie)
            group.wait_for_more()
            owned, before = zombie.owns, len(zombie.events)
            zombie.hold()
            zombie.pause()
            group.wait_shared(first)
            group.wait_for_more()
            with contextlib.nullcontext() if is_told else kafka.cluster.silent(1):
                zombie.resume()
                refused = zombie.do("commit", "refused", "committed")
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
    with Group(kafka, tmp_path, {topic: PARTITIONS}, config={"max_poll_interval_ms": 2_000}) as group:
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
    """Within its session, to the same partitions, and the others don't notice. Whoever comes while it is there fences it."""
    topic = kafka.topic("static", PARTITIONS)
    with Group(kafka, tmp_path, {topic: PARTITIONS}) as group:
        with Load(kafka, topic, PARTITIONS) as load:
            first, second = group.start(instance="one"), group.start(instance="two")
            group.wait_shared(first, second)
            group.wait_for_more()
            owned, before = second.owns, len(first.events)
            second.close()
            third = group.start(instance="two")
            group.wait_until(lambda: third.owns == owned, f"{third} to own {owned}")
            group.wait_for_more()
            third.kill()
            fourth = group.start(instance="two")
            group.wait_until(lambda: fourth.owns == owned, f"{fourth} to own {owned}")
            group.wait_for_more()
            fourth.hold()
            fifth = group.start(instance="two")
            group.wait_until(lambda: fifth.owns == owned, f"{fifth} to own {owned}")
            refused = fourth.do("commit", "refused", "committed")
            assert refused.told.get("error") == "FencedInstanceIdError"
            group.may_raise.add("FencedInstanceIdError")
            fourth.go()
            assert fourth.wait_for("raised").told["error"] == "FencedInstanceIdError"
            group.wait_for_more()
            assert len(fourth.told("raised")) == 1, "fatal is raised once"
            assert not first.told("assigned", "revoked", "lost", after=before)
        group.wait_for_all(load)


def test_a_topic_that_matches_is_created_later(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("pattern", 2)
    kafka.topic(f"no.{topic}")  # the whole name has to match
    settings = {"topics": [], "pattern": f"{re.escape(topic)}.*", "metadata_ms": 1_000}
    with Group(kafka, tmp_path, {topic: 2}, **settings) as group:
        first, second = group.start(), group.start()
        group.wait_shared(first, second)
        later = kafka.topic(f"{topic}.later", 2)
        group.partitions |= {TopicPartition(later, p) for p in range(2)}
        with Load(kafka, topic, 2) as old, Load(kafka, later, 2) as new:
            group.wait_shared(first, second)
            group.wait_for_more()
        group.wait_for_all(old, new)


def test_partitions_are_added(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("growing", 2)
    with Group(kafka, tmp_path, {topic: 2}, metadata_ms=1_000, strategies=["cooperative-sticky"]) as group:
        first, second = group.start(), group.start()
        group.wait_shared(first, second)
        kafka.admin.create_partitions([NewPartitions(topic, 4)])[topic].result(SECONDS)
        group.partitions |= {TopicPartition(topic, p) for p in range(4)}
        group.wait_shared(first, second)
        with Load(kafka, topic, 4) as load:
            group.wait_for_more()
        group.wait_for_all(load)
        revoked = [tp for member in (first, second) for event in member.told("revoked") for tp in event.partitions]
        assert len(revoked) <= 1, "what was there stayed where it was, but for what moved when the second one joined"


def test_a_change_of_topics(kafka: Kafka, tmp_path: Path) -> None:
    """Each member is given partitions of what it subscribes to now."""
    one, two = kafka.topic("one", 2), kafka.topic("two", 2)
    with Group(kafka, tmp_path, {one: 2, two: 2}, topics=[one]) as group:
        with Load(kafka, one, 2) as first_load, Load(kafka, two, 2) as second_load:
            first, second = group.start(), group.start()
            group.wait_until(lambda: first.owns and second.owns, "both to share the first topic")
            second.ask(f"subscribe {two}")
            group.wait_shared(first, second)
            assert ({tp.topic for tp in first.owns}, {tp.topic for tp in second.owns}) == ({one}, {two})
            group.wait_for_more()
        group.wait_for_all(first_load, second_load)


def test_a_rebalance_is_asked_for(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic("asked", PARTITIONS)
    with Group(kafka, tmp_path, {topic: PARTITIONS}) as group:
        with Load(kafka, topic, PARTITIONS) as load:
            first, second = group.start(), group.start()
            group.wait_shared(first, second)
            before = len(first.events)
            second.do("rebalance", "assigned")
            first.wait_for("assigned", after=before)
            group.wait_shared(first, second)
        group.wait_for_all(load)
        assert group.check() == 0


def test_from_eager_to_cooperative_without_a_stop(kafka: Kafka, tmp_path: Path) -> None:
    """In two rounds, as KIP-429 says: first everybody offers both, then only the new one."""
    topic = kafka.topic("change", PARTITIONS)
    with Group(kafka, tmp_path, {topic: PARTITIONS}) as group:
        with Load(kafka, topic, PARTITIONS) as load:
            members = [group.start(), group.start()]
            group.wait_shared(*members)
            for offered in (["cooperative-sticky", "range"], ["cooperative-sticky"]):
                for _ in range(2):
                    members.pop(0).close()
                    members.append(group.start(strategies=offered))
                    group.wait_shared(*members)
                    group.wait_for_more()
        group.wait_for_all(load)
        for member in members:
            member.close()
        assert group.check() == 0


def test_transactions(kafka: Kafka, tmp_path: Path) -> None:
    """Members change while positions stand behind markers, which are offsets without a record."""
    topic = kafka.topic("transactions", 2)
    wanted = dict.fromkeys((TopicPartition(topic, 0), TopicPartition(topic, 1)), 0)
    producer = kafka.producer(transactional_id=topic)
    producer.init_transactions(SECONDS)

    def write(turns: int) -> None:
        for turn in range(turns):
            is_kept = turn % 3 != 2
            producer.begin_transaction()
            for tp in wanted:
                for _ in range(5):
                    value = value_of(tp.partition, wanted[tp]) if is_kept else b"of an aborted transaction"
                    producer.produce(topic, value, partition=tp.partition)
                    wanted[tp] += is_kept
            (producer.commit_transaction if is_kept else producer.abort_transaction)(SECONDS)

    with Group(kafka, tmp_path, {topic: 2}, isolation="read_committed") as group:
        members = [group.start(), group.start()]
        group.wait_shared(*members)
        for _ in range(2):
            write(9)
            group.wait_for_records(wanted)
            members.pop(0).close()
            members.append(group.start())
            group.wait_shared(*members)
        write(9)
        group.wait_for_records(wanted)
        assert group.check() == 0
