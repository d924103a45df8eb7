"""One group of four clients: ours, librdkafka, kafka-python and Kafka's own. They understand one another's words, whoever leads.

Each goes on where the one before it committed, so commits of each are read back by the others.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.conftest import Kafka
from tests.live.groups import Group
from tests.live.history import Load

OTHERS = ("confluent", "kafka-python", "java")


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_four_clients_share_two_topics(kafka: Kafka, tmp_path: Path, strategy: str) -> None:
    topics = [kafka.topic("mixed", 4), kafka.topic("mixed", 4)]
    with Group(kafka, tmp_path, dict.fromkeys(topics, 4), strategies=[strategy]) as group:
        with Load(kafka, topics[0], 4) as one, Load(kafka, topics[1], 4) as two:
            ours = group.start()
            group.wait_shared(ours)
            others = [group.start(client) for client in OTHERS]
            group.wait_shared(ours, *others)
            assert ours.told("led")[-1].told["members"] == 4, "who came first leads"
            group.wait_for_more()
            ours.close()
            group.wait_shared(*others)
            group.wait_for_more()
            again = group.start()
            group.wait_shared(again, *others)
            group.wait_for_more()
            assert not again.told("led"), "one of the others leads"
            while others:
                others.pop(0).close()
                group.wait_shared(again, *others)
                group.wait_for_more()
        group.wait_for_all(one, two)
        again.close()
        assert group.check() == 0
