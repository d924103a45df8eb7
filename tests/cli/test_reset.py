"""`kfetch offsets --reset` in this process: what would be written, what is, and who is in the way."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fastfetch.cli import main
from fastfetch.testing import Broker, encode_batch, error, replace
from fastfetch.types import OffsetAndMetadata, TopicPartition

from .folders import TIME, batch
from .groups import joined


def kfetch(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["offsets", *map(str, arguments)], env={"FASTFETCH_BOOTSTRAP_SERVERS": None})


def reset(broker: Broker, *arguments: object) -> Result:
    return kfetch("-b", broker.bootstrap_servers, "-g", "g", "--reset", *arguments)


def rows(broker: Broker, *arguments: object) -> list[list[str]]:
    """partition, committed, new, difference and note of each line. A dry run."""
    done = reset(broker, *arguments)
    assert (done.exit_code, done.stderr.count("\n")) == (0, 1), done.stderr
    assert done.stderr.startswith("kfetch: a dry run, nothing was written; --execute writes ")
    names, *lines = [re.split(r"\s{2,}", line) for line in done.stdout.splitlines()]
    assert names == ["topic", "partition", "committed", "new", "difference", "note"]
    assert {line[0] for line in lines} <= {"orders"}
    return [line[1:] for line in lines]


def written(broker: Broker, group: str = "g") -> dict[tuple[str, int], int]:
    return {tuple(tp): at.offset for tp, at in broker.committed(group).items()}


@pytest.fixture
def broker() -> Iterator[Broker]:
    """orders: 5 to 19 in partition 0, of which 12 is committed, a second apart; 0 to 9 in 1, all committed; nothing in 2."""
    with Broker() as broker:
        broker.create_topic("orders", partitions=3)
        for partition, base in ((0, 0), (0, 10), (1, 0)):
            broker.append("orders", partition, batch(base))
        broker.delete_records("orders", 0, 5)
        broker.set_committed("g", "orders", 0, 12, "note", 4)
        broker.set_committed("g", "orders", 1, 10)
        yield broker


# -------------------------------------------------------------------------------------------------------------------- where to


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        (["--to-earliest"], [["0", "12", "5", "-7", "-"], ["1", "10", "0", "-10", "-"]]),
        (["--to-latest"], [["0", "12", "20", "8", "-"], ["1", "10", "10", "0", "-"]]),
        (["--to-offset", 15], [["0", "12", "15", "3", "-"], ["1", "10", "10", "0", "15 is beyond the end"]]),
        (["--to-offset", 4], [["0", "12", "5", "-7", "4 is before the start"], ["1", "10", "4", "-6", "-"]]),
        (["--shift-by", 8], [["0", "12", "20", "8", "-"], ["1", "10", "10", "0", "18 is beyond the end"]]),
        (["--shift-by", -8], [["0", "12", "5", "-7", "4 is before the start"], ["1", "10", "2", "-8", "-"]]),
        (
            ["--shift-by", -12],
            [["0", "12", "5", "-7", "0 is before the start"], ["1", "10", "0", "-10", "-2 is before the start"]],
        ),
        (["--to-current"], [["0", "12", "12", "0", "-"], ["1", "10", "10", "0", "-"]]),
        (["--to-datetime", TIME + 8_500], [["0", "12", "9", "-3", "-"], ["1", "10", "9", "-1", "-"]]),
        (
            ["--to-datetime", datetime.fromtimestamp(TIME / 1000 + 12, UTC).isoformat()],
            [["0", "12", "12", "0", "-"], ["1", "10", "10", "0", "no record so late: the end"]],
        ),
        (
            ["--by-duration", "P1D"],
            [["0", "12", "20", "8", "no record so late: the end"], ["1", "10", "10", "0", "no record so late: the end"]],
        ),
        (["--by-duration", "P99999D"], [["0", "12", "5", "-7", "-"], ["1", "10", "0", "-10", "-"]]),
        (["--to-datetime", "1900-01-01"], [["0", "12", "5", "-7", "-"], ["1", "10", "0", "-10", "-"]]),
        (["--by-duration", "99999d"], [["0", "12", "5", "-7", "-"], ["1", "10", "0", "-10", "-"]]),
    ],
)
def test_targets(broker: Broker, target: list[object], wanted: list[list[str]]) -> None:
    """In the partitions that the group has committed for. Nothing is written."""
    before = broker.committed("g")
    assert rows(broker, *target) == wanted
    assert broker.committed("g") == before
    assert not broker.requests("OffsetCommit")


def test_so_long_ago(broker: Broker) -> None:
    now = datetime.now(UTC).timestamp() * 1000
    broker.append("orders", 2, encode_batch([(None, b"x", int(now) - age * 60_000, []) for age in (90, 45, 10)]))
    for age, new in {"1h": "1", "PT60M": "1", "PT11M": "2", "1h31m": "0", "5m": "3"}.items():
        assert rows(broker, "--by-duration", age, "orders:2")[0][2] == new, age


def test_partitions_that_are_named(broker: Broker) -> None:
    """Whether anything is committed or not, which --shift-by alone needs."""
    assert rows(broker, "--to-earliest", "orders:0,2") == [["0", "12", "5", "-7", "-"], ["2", "-", "0", "-", "-"]]
    assert [row[0] for row in rows(broker, "--to-earliest", "orders")] == ["0", "1", "2"]
    assert [row[0] for row in rows(broker, "--to-earliest", "orders:2", "orders:0-1")] == ["0", "1", "2"]
    assert rows(broker, "--to-current", "orders:1-2")[1] == ["2", "-", "0", "-", "nothing was committed: the end"]
    done = reset(broker, "--shift-by", 1, "orders", "--execute")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "nothing is committed for orders-2, so nothing can be shifted" in done.stderr
    assert not broker.requests("OffsetCommit")


def test_current_offsets_that_retention_has_passed_are_mended(broker: Broker) -> None:
    broker.delete_records("orders", 0, 15)
    broker.set_committed("g", "orders", 1, 11)
    assert rows(broker, "--to-current") == [
        ["0", "12", "15", "3", "12 is before the start"],
        ["1", "11", "10", "-1", "11 is beyond the end"],
    ]


def test_up_to_the_last_stable_offset(broker: Broker) -> None:
    broker.append("orders", 1, encode_batch([b"x"] * 5, producer_id=2, transactional=True))
    assert rows(broker, "--to-latest", "orders:1")[0][2] == "15"
    assert rows(broker, "--to-latest", "orders:1", "--isolation", "read_committed")[0][2] == "10"


# --------------------------------------------------------------------------------------------------------------------- writing


def test_what_is_shown_is_written(broker: Broker) -> None:
    done = reset(broker, "--to-offset", 7, "--execute")
    assert (done.exit_code, done.stderr) == (0, "kfetch: wrote 2 offsets of group 'g'\n")
    assert written(broker) == {("orders", 0): 7, ("orders", 1): 7}
    [commit] = broker.requests("OffsetCommit")
    assert (commit.body["generation_id_or_member_epoch"], commit.body["member_id"]) == (-1, "")


def test_what_stays_keeps_its_metadata_and_epoch(broker: Broker) -> None:
    broker.set_committed("g", "orders", 1, 4, "other", 2)
    done = reset(broker, "--to-offset", 12, "--execute")
    assert done.exit_code == 0
    assert broker.committed("g") == {
        TopicPartition("orders", 0): OffsetAndMetadata(12, "note", 4),
        TopicPartition("orders", 1): OffsetAndMetadata(10),
    }


def test_json(broker: Broker) -> None:
    for options, is_written in (((), False), (("--execute",), True)):
        done = reset(broker, "--to-latest", "orders:0,2", "--json", *options)
        assert done.exit_code == 0
        assert [json.loads(line) for line in done.stdout.splitlines()] == [
            {"topic": "orders", "partition": 0, "committed": 12, "new": 20, "difference": 8, "note": "", "written": is_written},
            {"topic": "orders", "partition": 2, "committed": None, "new": 0, "difference": None, "note": ""}
            | {"written": is_written},
        ]


def test_what_is_gone_is_left_as_it_is(broker: Broker) -> None:
    broker.create_topic("gone")
    broker.set_committed("g", "gone", 0, 5)
    broker.delete_topic("gone")
    done = reset(broker, "--to-earliest", "--execute", "--json")
    assert done.exit_code == 0
    first, *_ = [json.loads(line) for line in done.stdout.splitlines()]
    assert (first["topic"], first["new"], first["written"]) == ("gone", None, False)
    assert first["note"] == "no such partition any more, left as it is"
    assert written(broker) == {("gone", 0): 5, ("orders", 0): 5, ("orders", 1): 0}
    assert done.stderr == "kfetch: wrote 2 offsets of group 'g'\n"


def test_a_group_that_does_not_exist_yet(broker: Broker) -> None:
    ask = ("-b", broker.bootstrap_servers, "-g", "seeded", "--reset", "--to-latest")
    done = kfetch(*ask)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "kfetch: group 'seeded' does not exist: look at the name, or name the topics to commit for\n"
    done = kfetch(*ask, "orders:0")
    assert done.stderr.endswith("--execute writes 1 offset of group 'seeded', which does not exist yet\n")
    done = kfetch(*ask, "orders:0", "--execute")
    assert done.stderr == "kfetch: wrote 1 offset of group 'seeded'; there was no group of this name\n"
    assert written(broker, "seeded") == {("orders", 0): 20}


# ------------------------------------------------------------------------------------------------------------------ not empty


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("options", [(), ("--execute",)])
def test_a_group_with_members_is_refused_by_name(broker: Broker, protocol: str, options: tuple[str, ...]) -> None:
    with joined(broker, "g", 1, protocol):
        [member] = broker.group("g").members
        done = reset(broker, "--to-earliest", *options)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == (
        "kfetch: group 'g' is Stable, and only the offsets of an empty group can be reset: nothing was written. Stop its members "
        f"first; in it: app-0 at 127.0.0.1 ({member})\n"
    )
    assert not broker.requests("OffsetCommit")
    assert written(broker) == {("orders", 0): 12, ("orders", 1): 10}


def test_many_members_are_not_all_named(broker: Broker) -> None:
    member = {"client_id": "c", "client_host": "/h", "member_metadata": b"", "member_assignment": b""}
    told = {"group_id": "g", "group_state": "PreparingRebalance", "protocol_type": "consumer", "protocol_data": ""}
    members = [member | {"member_id": f"m{number}"} for number in range(8)]
    broker.on("DescribeGroups", replace({"groups": [told | {"members": members}]}), times=None)
    done = reset(broker, "--to-earliest")
    assert done.stderr.endswith("in it: c at h (m0), c at h (m1), c at h (m2), c at h (m3), c at h (m4), 3 more\n")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_comes_between_the_check_and_the_commit(broker: Broker, protocol: str) -> None:
    """The coordinator refuses a commit without membership, and the message says who came."""
    empty = {"group_id": "g", "group_state": "Empty", "protocol_type": "consumer", "protocol_data": "", "members": []}
    with joined(broker, "g", 1, protocol):
        broker.on("ConsumerGroupDescribe", error(69))
        broker.on("DescribeGroups", replace({"groups": [empty]}))
        done = reset(broker, "--to-earliest", "--execute")
        assert len(broker.requests("OffsetCommit")) == 1
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "in it: app-0 at 127.0.0.1" in done.stderr
    assert written(broker) == {("orders", 0): 12, ("orders", 1): 10}


def test_a_commit_that_is_refused_for_another_reason(broker: Broker) -> None:
    broker.on("OffsetCommit", error(28))
    done = reset(broker, "--to-earliest", "--execute")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "INVALID_COMMIT_OFFSET_SIZE" in done.stderr


def test_a_share_group_has_no_committed_offsets(broker: Broker) -> None:
    listed = {"group_id": "shared", "protocol_type": "share", "group_state": "Empty", "group_type": "Share"}
    broker.on("ListGroups", replace({"groups": [listed]}))
    done = kfetch("-b", broker.bootstrap_servers, "-g", "shared", "--reset", "--to-earliest", "orders", "--execute")
    assert (done.exit_code, done.stderr) == (1, "kfetch: group 'shared' is a share group: not one of consumers\n")
    assert not broker.requests("OffsetCommit")


# ------------------------------------------------------------------------------------------------------------- called wrongly


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-g", "g", "--reset"], "where to? Say one of --to-earliest,"),
        (["-g", "g", "--reset", "--to-earliest", "--to-offset", "3"], "not --to-earliest and --to-offset at once"),
        (["-g", "g", "--to-latest"], "--to-latest says how committed offsets are to be changed, and --reset is missing"),
        (["-g", "g", "--shift-by", "0"], "--reset is missing"),
        (["-g", "g", "--execute"], "--execute says how"),
        (["--reset", "--to-latest"], "whose offsets? Say -g GROUP"),
        (["-g", "g", "--reset", "--to-latest", "--at", "now"], "--to-datetime"),
        (["-g", "g", "--reset", "--to-offset", "-1"], "is no offset"),
        (["-g", "g", "--reset", "--to-offset", "x"], "'x' is no whole number"),
        (["-g", "g", "--reset", "--shift-by", str(2**63)], "is no offset"),
        (["-g", "g", "--reset", "--to-datetime", "yesterday"], "2026-01-31T12:00Z"),
        (["-g", "g", "--reset", "--by-duration", "soon"], "'soon' is no duration"),
        (["-g", "g", "--reset", "--by-duration", "99999999999d"], "is no duration"),
        (["-g", "g", "--reset", "--to-latest", "orders:a"], "is no list of partitions"),
    ],
)
def test_called_wrongly(arguments: list[str], said: str) -> None:
    done = kfetch("-b", "127.0.0.1:1", *arguments)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr


def test_a_partition_that_a_topic_does_not_have(broker: Broker) -> None:
    done = reset(broker, "--to-earliest", "orders:0,7,9", "--execute")
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", "kfetch: orders has partitions 0 to 2, and no 7, 9\n")
    assert not broker.requests("OffsetCommit")


def test_partitions_without_a_reset(broker: Broker) -> None:
    done: Any = kfetch("-b", broker.bootstrap_servers, "orders:1-2", "-g", "g")
    assert [line.split() for line in done.stdout.splitlines()[1:]] == [
        ["orders", "1", "0", "10", "10", "10"],
        ["orders", "2", "0", "0", "0", "-"],
    ]
