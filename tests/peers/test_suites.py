"""What passes of a client's own tests passes with our adapter in its place; docs/adapters.md explains the differences."""

from __future__ import annotations

from pathlib import Path

import pytest
from peers.suites import SUITES, Comparison, Suite, UnavailableError, compare

ENOUGH = 0.98


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("client", SUITES)
def test_the_clients_own_tests_pass(client: str) -> None:
    try:
        found = compare(SUITES[client])
    except UnavailableError as error:
        pytest.skip(str(error))
    assert found.unexplained == []
    assert found.outdated == []
    assert found.share >= ENOUGH


@pytest.mark.parametrize("client", SUITES)
def test_each_known_difference_is_in_the_docs(client: str, root: Path) -> None:
    text = " ".join((root / "docs" / "adapters.md").read_text().split())
    assert [name for name, why in SUITES[client].known.items() if name.rpartition("::")[2] not in text] == []


def test_a_loss_is_seen_and_a_reason_is_for_its_test_alone() -> None:
    suite = Suite("client", "", (), "", known={"a::two": "because", "a::six": "no more"})
    alone = {"a::one": "passed", "a::two[x]": "passed", "a::three": "passed", "a::four": "failed", "a::five": "skipped"}
    found = Comparison(suite, alone, {"a::one": "passed", "a::two[x]": "failed", "a::three": "skipped", "a::four": "passed"})
    assert (found.lost, found.unexplained, found.outdated) == (["a::two[x]", "a::three"], ["a::three"], ["a::six"])
    assert found.share == pytest.approx(1 / 3)
