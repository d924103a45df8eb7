"""What the constructors of other clients take, in the words of ours."""

from __future__ import annotations

from typing import Any

import pytest

from fastfetch.adapters.settings import say_once, servers, strategies
from fastfetch.assignors import Assignor
from fastfetch.config import parse_bootstrap_servers


@pytest.mark.parametrize(
    ("given", "addresses"),
    [
        ("localhost", ["localhost:9092"]),
        ("a, b:1,", ["a:9092", "b:1", ""]),
        (["a:", "b:2"], ["a:9092", "b:2"]),
        (("::1", "[::1]", "[::1]:5"), ["[::1]:9092", "[::1]:9092", "[::1]:5"]),
        ([7], [7]),
    ],
)
def test_addresses_get_their_port(given: Any, addresses: list[Any]) -> None:
    assert servers(given) == addresses
    if 7 not in addresses:
        assert all(1 <= port <= 65535 for _, port in parse_bootstrap_servers(servers(given)))


def test_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    for key in ("left", "left", "right"):
        say_once("TestClient", key, "there is none")
    assert [record.getMessage() for record in caplog.records] == [
        "TestClient: left has no effect here: there is none",
        "TestClient: right has no effect here: there is none",
    ]


def test_assignors_of_peers_are_ours_of_that_name() -> None:
    pytest.importorskip("aiokafka")
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    class Mine(RangePartitionAssignor):
        """No stand-in for ours."""

    class Own(Assignor):
        name = "range"

    given = [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor, "sticky", Mine, Own]
    assert strategies(given) == ("range", "roundrobin", "sticky", "sticky", Mine, Own)
    assert strategies(RangePartitionAssignor) == ("range",)
