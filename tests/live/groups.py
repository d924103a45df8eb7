"""Groups whose members are processes, of our client and of others, and the account of what they were given.

    with Group(kafka, tmp_path, {topic: 6}, strategies=["range"]) as group, Load(kafka, topic, 6) as load:
        first, second = group.start(), group.start("confluent")
        group.wait_shared(first, second)
        second.close()
        ...
    group.wait_for_all(load)

Members tell what happens to them (`group_member.py`, `GroupMember.java`), all by one clock. When the block ends, the whole
history is gone through, see `account`.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import pytest

from fastfetch import TopicPartition
from tests.live.administration import described
from tests.live.conftest import SECONDS, Kafka, do_without, wait_for
from tests.live.history import Load
from tests.live.kafka_cluster import DEFAULT_VERSION, jars

HERE = Path(__file__).parent
SESSION_MS = 4_000
# Longer than anything here waits: whoever takes over in time was told, and did not wait for a session to end.
LONG_SESSION_MS = 60_000
ENDED = ("closed", "killed", "silenced")  # whose partitions are anybody's from here on

SETTINGS: dict[str, Any] = {
    "protocol": "classic",  # with "consumer" the broker has strategies, session and heartbeat interval
    "strategies": ["range"],
    "pattern": None,
    "session_ms": LONG_SESSION_MS,
    "heartbeat_ms": 300,  # a rebalance takes as long as the last member to hear of it
    "metadata_ms": 300_000,
    "auto_commit": False,
    "commit_every": 50,  # records; 0: never, nor when partitions are revoked
    "max_records": 20,  # of a poll
    "isolation": "read_uncommitted",
    "instance": None,
    "config": {},  # more settings of fastfetch
}


class Event(NamedTuple):
    """`at`: seconds of the clock that all processes share."""

    at: float
    member: str
    kind: str
    told: dict[str, Any]

    @property
    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(*tp) for tp in self.told["partitions"]]


class Member:
    """A process. `events`, `owns` and `reached` are what it has told so far."""

    def __init__(self, name: str, client: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self.client = client
        self.events: list[Event] = []
        self.owns: set[TopicPartition] = set()
        self.reached: dict[TopicPartition, int] = {}  # the number after the last record handed out
        self.has_ended = False
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=HERE.parent.parent
            )
        self._thread = threading.Thread(target=self._listen, name=name, daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"{self.name} ({self.client})"

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                return  # killed while it said something
            told = json.loads(line)
            event = Event(told.pop("at"), self.name, told.pop("event"), told)
            if event.kind == "assigned":
                self.owns = self.owns | set(event.partitions)
            elif event.kind in ("revoked", "lost"):
                self.owns = self.owns - set(event.partitions)
            elif event.kind == "records":
                self.reached[TopicPartition(*told["partition"])] = told["first"] + told["count"]
            self.events.append(event)

    def _note(self, kind: str) -> None:
        self.events.append(Event(time.monotonic(), self.name, kind, {}))

    def ask(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def told(self, *kinds: str, after: int = 0) -> list[Event]:
        """`after`: how many events it had told before."""
        return [event for event in self.events[after:] if event.kind in kinds]

    def wait_for(self, *kinds: str, after: int = 0) -> Event:
        """The next event of these kinds; `after`: how many it had told before."""

        def has_told() -> bool:
            self.check_alive()
            return bool(self.told(*kinds, after=after))

        wait_for(has_told, f"{kinds} of {self}; last: {self.events[-3:]}")
        return self.told(*kinds, after=after)[0]

    def do(self, command: str, *kinds: str) -> Event:
        """Give a command and wait for what it leads to."""
        before = len(self.events)
        self.ask(command)
        return self.wait_for(*kinds, after=before)

    def close(self) -> None:
        """In good order."""
        self.ask("close")
        self._process.wait(SECONDS)
        self.finish()
        assert self._process.returncode == 0, self.log_tail()

    def kill(self) -> None:
        """SIGKILL. What it had told before is known when this returns."""
        self._process.kill()
        self.finish()
        self._note("killed")

    def hold(self) -> None:
        """No polls until `go`, for so long that what it owns will be others', and nobody tells it."""
        self.do("hold", "hold")
        self._note("silenced")

    def go(self) -> None:
        self.do("go", "go")

    def pause(self) -> None:
        """SIGSTOP. To be held before: what is under way in a poll would come out afterwards, and rightly so."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._note("resumed")
        self._process.send_signal(signal.SIGCONT)

    def finish(self) -> None:
        """Until it has ended and all it told is known."""
        self.has_ended = True
        self._process.wait(SECONDS)
        self._thread.join(SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def check_alive(self) -> None:
        if not self.has_ended and self._process.poll() is not None:
            pytest.fail(f"{self} ended with status {self._process.returncode}\n{self.log_tail()}")

    def log_tail(self) -> str:
        return "".join(self._log.read_text(errors="replace").splitlines(keepends=True)[-15:])


class Group:
    """Members of one group, and the account of what they were given. `topics`: their numbers of partitions."""

    def __init__(self, kafka: Kafka, folder: Path, topics: Mapping[str, int], /, **settings: Any) -> None:
        self.kafka = kafka
        self.name = f"group of {', '.join(topics)}"
        self.partitions = {TopicPartition(topic, p) for topic, count in topics.items() for p in range(count)}
        self.members: list[Member] = []
        self.may_raise: set[str] = set()  # errors that a poll of ours may raise
        self._folder = folder
        self._settings = SETTINGS | {"servers": kafka.servers, "group": self.name, "topics": list(topics)} | settings

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for member in self.members:
            if not member.has_ended:
                member.kill()
        if error is None:
            self.check()

    def start(self, client: str = "fastfetch", **settings: Any) -> Member:
        """A new process, which joins as soon as it has started."""
        name = f"member {len(self.members)}"
        given = json.dumps(self._settings | settings)
        if client == "java":
            command = [*java(self._folder), given]
        else:
            command = [sys.executable, str(HERE / "group_member.py"), client, given]
        member = Member(name, client, command, self._folder / f"{name}.log")
        self.members.append(member)
        return member

    # --- waiting --------------------------------------------------------------------------------------------------------

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        def holds() -> bool:
            for member in self.members:
                member.check_alive()
            return condition()

        try:
            wait_for(holds, what)
        except pytest.fail.Exception as failure:
            said = "\n".join(f"--- {member}: owns {sorted(member.owns)}\n{member.log_tail()}" for member in self.members)
            pytest.fail(f"{failure}\n{said}")

    def wait_shared(self, *members: Member) -> None:
        """Until these members own all partitions between them, in near equal numbers, and the coordinator says the same."""

        def is_shared() -> bool:
            owned = [member.owns for member in members]
            if sum(map(len, owned)) != len(self.partitions) or set().union(*owned) != self.partitions:
                return False
            found = described(self.kafka, self.name, self._settings["protocol"])
            return (
                found is not None
                and found.state == "Stable"
                and sorted(map(sorted, found.assigned)) == sorted(map(sorted, owned))
            )

        self.wait_until(is_shared, f"{members} to share {len(self.partitions)} partitions")
        counts = [len(member.owns) for member in members]
        topics = len({tp.topic for tp in self.partitions})
        assert max(counts) - min(counts) <= topics, counts  # range gives one more of each topic to the first

    def coordinator(self) -> int | None:
        """Its node; None while that can't be told."""
        found = described(self.kafka, self.name, self._settings["protocol"])
        return found and found.coordinator

    def wait_moved(self, victim: int) -> None:
        """Until another node than this one coordinates the group."""
        self.wait_until(lambda: self.coordinator() not in (None, victim), f"a coordinator other than {victim}")

    def handed_out(self) -> dict[TopicPartition, int]:
        """Of each partition, the number after the highest that any member was given."""
        highest = dict.fromkeys(self.partitions, 0)
        for member in self.members:
            for tp, number in list(member.reached.items()):
                highest[tp] = max(highest.get(tp, 0), number)
        return highest

    def wait_for_more(self, count: int = 20) -> None:
        """Until so many more records of each partition have been handed out."""
        before = self.handed_out()

        def has_more() -> bool:
            now = self.handed_out()
            return all(now[tp] >= number + count for tp, number in before.items())

        self.wait_until(has_more, f"{count} more of each of {before}")

    def wait_for_all(self, *loads: Load) -> None:
        """Until everything that was acknowledged has been handed out."""
        self.wait_for_records({TopicPartition(load.topic, p): n for load in loads for p, n in load.acknowledged.items()})

    def wait_for_records(self, wanted: Mapping[TopicPartition, int]) -> None:
        """Until so many records of each partition have been handed out."""
        self.wait_until(lambda: self.handed_out() == wanted, f"all of {wanted}")

    # --- the account ----------------------------------------------------------------------------------------------------

    def check(self) -> int:
        """What `account` says of all that has happened. No poll of ours has raised anything unexpected."""
        for member in self.members:
            if member.client in ("fastfetch", "async"):
                raised = [event.told for event in member.told("raised") if event.told["error"] not in self.may_raise]
                assert not raised, f"polls of {member} raised {raised}"
        events = (event for member in self.members for event in member.events)
        return account(sorted(events, key=lambda event: event.at))


def account(history: Iterable[Event]) -> int:
    """Go through all that happened; returns how many records were handed out more than once.

    Each partition has one owner at a time, and nobody is given records of a partition that is not theirs. An owner is given
    records in order, without a gap, from where the group stood: not beyond what anybody was given before, so none is lost, and
    not below what was committed, so no more is repeated than the records since. Nobody commits what is not theirs.
    """
    owners: dict[TopicPartition, str] = {}
    expected: dict[TopicPartition, int] = {}  # the number that must come next to the present owner
    reached: dict[TopicPartition, int] = {}  # the number after the highest handed out to anybody
    committed: dict[TopicPartition, int] = {}
    repeated = 0
    for event in history:
        who = event.member
        if event.kind == "assigned":
            for tp in event.partitions:
                assert tp not in owners, f"{tp} was assigned to {who} while {owners[tp]} had it"
                owners[tp] = who
                expected.pop(tp, None)
        elif event.kind in ("revoked", "lost"):
            for tp in event.partitions:
                assert event.kind == "lost" or owners.get(tp) == who, f"{tp} was revoked of {who}, who did not have it"
                if owners.get(tp) == who:
                    del owners[tp]
        elif event.kind in ENDED:
            held = [tp for tp, owner in owners.items() if owner == who]
            assert event.kind != "closed" or not held, f"{who} closed, and {held} were not revoked"
            for tp in held:
                del owners[tp]
        elif event.kind == "committed":
            for topic, partition, number in event.told["upto"]:
                tp = TopicPartition(topic, partition)
                assert owners.get(tp) == who, f"{who} committed {number} of {tp}, whose owner was {owners.get(tp)}"
                committed[tp] = number
        elif event.kind == "records":
            tp, first = TopicPartition(*event.told["partition"]), event.told["first"]
            assert owners.get(tp) == who, f"{who} was given records of {tp}, whose owner was {owners.get(tp)}"
            others = reached.get(tp, 0)
            if tp in expected:
                assert first == expected[tp], f"{who} was given {tp} at {first} after {expected[tp]}"
            else:
                assert first <= others, f"{who} began {tp} at {first}, the others had got to {others}"
                assert first >= committed.get(tp, 0), f"{who} began {tp} at {first}, committed was {committed[tp]}"
                repeated += others - first
            expected[tp] = first + event.told["count"]
            reached[tp] = max(others, expected[tp])
    return repeated


def java(folder: Path) -> list[str]:
    """How to run GroupMember.java, compiled once a session. `folder`: of a test; it lies beside those of the others."""
    if shutil.which("javac") is None:
        do_without("Kafka's own client as a member of a group needs a JDK, and there is no javac on PATH")
    path = f"{jars(DEFAULT_VERSION)}/*"
    classes = folder.parent / "group member"
    if not (classes / "GroupMember.class").exists():
        done = subprocess.run(
            ["javac", "-nowarn", "-cp", path, "-d", str(classes), str(HERE / "GroupMember.java")],
            capture_output=True, text=True, timeout=4 * SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    options = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
    return ["java", *options, "-cp", f"{classes}:{path}", "GroupMember"]
