"""An unclean election makes a leader of a replica that lacks what was read already (KIP-320): its offsets are given out again."""

from __future__ import annotations

import logging
import time

import pytest

import fastfetch
from fastfetch import TopicPartition
from fastfetch.errors import LogTruncationError
from tests.live.conftest import SECONDS, Kafka, Sent, poll_for_error, read_to_end, sent, wait_for

BOTH = 50  # records that the two replicas have
ONE = 30  # and that only the dead leader has


def test_records_that_were_read_are_cut_off(three: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    three.wait_in_sync()
    topic = three.topic("cut", replicas=[[1, 2]], unclean_leader_election_enable="true", min_insync_replicas=1)
    tp = TopicPartition(topic, 0)

    def records(what: bytes, count: int) -> list[Sent]:
        return [Sent(b"k", b"%s %d" % (what, i), [], 1_700_000_000_000) for i in range(count)]

    try:
        with (
            caplog.at_level(logging.WARNING, "fastfetch"),
            fastfetch.Consumer(bootstrap_servers=three.servers, auto_offset_reset="earliest") as resets,
            fastfetch.Consumer(bootstrap_servers=three.servers, auto_offset_reset="none") as stays,
        ):
            kept = three.produce(topic, records(b"on both", BOTH), acks="all")
            three.cluster.kill(2)
            wait_for(lambda: three.admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions[0].isrs == [1], "ISR of 1")
            lost = three.produce(topic, records(b"on one", ONE))
            for consumer in (resets, stays):
                consumer.assign([tp])
                consumer.seek(tp, 0)
                assert sent(read_to_end(consumer, tp)) == kept + lost
            three.cluster.kill(1)
            three.cluster.launch(2)
            wait_for(lambda: three.leaders(topic)[0] == 2, "an unclean election")
            # So many that the old position lies amid them: whoever just goes on there misses the first ones.
            new = three.produce(topic, records(b"afterwards", 2 * ONE))
            assert new[0].offset == BOTH

            read: list[Sent] = []
            deadline = time.monotonic() + SECONDS
            while len(read) < len(new) and time.monotonic() < deadline:
                read += sent(resets.poll_blocks(timeout_ms=200))
            assert read == new
            [warning] = [r.getMessage() for r in caplog.records if "was cut" in r.getMessage()]
            assert f"offset {BOTH + ONE} " in warning
            assert f"offset {BOTH}," in warning

            with pytest.raises(LogTruncationError) as raised:
                poll_for_error(stays)
            error = raised.value
            assert (error.topic, error.partition, error.position) == (topic, 0, BOTH + ONE)
            assert error.divergent_offset == BOTH
            stays.seek(tp, error.divergent_offset)
            assert sent(read_to_end(stays, tp)) == new
    finally:
        three.cluster.heal()
