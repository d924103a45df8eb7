"""The second half of `kfetch demo`: two members of a group, in processes of their own, share a topic to which records are being
appended; one of them is killed with SIGKILL half way, and the other takes its partitions over.

Every record is accounted for by its offset. None may be missing; read twice are no more than those that the killed member had
read and not committed.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from fastfetch.errors import FastFetchError
from fastfetch.errors import TimeoutError as TimedOut
from fastfetch.testing import Broker, encode_batch
from fastfetch.testing.corpus import DEMO_CODECS, order_rows

__all__ = ["Account", "Told", "share_and_kill"]

TOPIC, GROUP = "shared-orders", "kfetch-demo-group"
PARTITIONS = 6
SESSION_MS, HEARTBEAT_MS = 1_500, 300  # a stock broker takes no session below 6 s; the demo's need not wait so long
_STEPS, _STEP_S = 30, 0.1
_MEMBER = "fastfetch.cli.demo_member"
_RECORDS_PER_BATCH = 80
_STALLED_S = 30.0


@dataclass
class Told:
    """What a member has told, see `demo_member`.

    read        (partition, first, last), in order
    committed   {partition: next offset}
    owned_at    time.monotonic() of the last change to what it owns
    given_up    records of partitions it no longer owns that it had read and not committed: the next owner reads them again
    """

    read: list[tuple[int, int, int]] = field(default_factory=list)
    committed: dict[int, int] = field(default_factory=dict)
    owns: list[int] = field(default_factory=list)
    owned_at: float = 0.0
    given_up: int = 0

    def __post_init__(self) -> None:
        self._open: dict[int, tuple[int, int]] = {}  # of each partition it owns: first offset not committed, next one to read

    def hear(self, line: bytes) -> None:
        what, *details = json.loads(line)
        if what == "read":
            partition, first, last = details
            self.read.append((partition, first, last))
            self._open[partition] = (self._open.get(partition, (first, first))[0], last + 1)
        elif what == "committed":
            committed = {int(partition): offset for partition, offset in details[0].items()}
            self.committed |= committed
            for partition in committed.keys() & self._open.keys():
                self._open[partition] = (committed[partition], self._open[partition][1])
        else:
            self.owned_at = time.monotonic()
            self.owns = details[0]
            for partition in self._open.keys() - self.owns:
                first, end = self._open.pop(partition)
                self.given_up += end - first

    @property
    def records(self) -> int:
        return sum(last - first + 1 for _, first, last in self.read)

    @property
    def not_committed(self) -> int:
        """Records that it has read and that its commits do not cover."""
        return self.given_up + sum(end - first for first, end in list(self._open.values()))


class _Process:
    """A member's process, and a thread that hears what it tells."""

    def __init__(self, name: str, bootstrap_servers: str) -> None:
        self.name = name
        self.told = Told()
        settings = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "fetch.max.wait.ms": 100,
            "client.id": name.replace(" ", "-"),
        }
        told = json.dumps({"topic": TOPIC, "parent": os.getpid(), "settings": settings})
        self.process = subprocess.Popen([sys.executable, "-m", _MEMBER, told], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self._thread = threading.Thread(target=self._hear, name=f"fastfetch-demo-{name}", daemon=True)
        self._thread.start()

    def _hear(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.told.hear(line)

    def check(self) -> None:
        code = self.process.poll()
        if code is not None:
            raise FastFetchError(f"{self.name} has ended by itself, with exit code {code}")

    def kill(self) -> None:
        """SIGKILL; returns when everything it has told is heard."""
        self.process.kill()
        self.process.wait()
        self._thread.join()

    def close(self) -> None:
        """Let it leave the group."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.kill()


@dataclass(frozen=True)
class Account:
    """What became of the records.

    appended        to the topic
    lost            read by nobody
    twice           read more than once, counted once a time too many
    allowed_twice   that a member had read and not committed when it lost their partition: mostly the killed one
    committed       the last commit is the end of every partition
    """

    appended: int
    lost: int
    twice: int
    allowed_twice: int
    committed: bool

    @property
    def fault(self) -> str:
        """What is wrong; empty: nothing."""
        if self.lost:
            return "RECORDS ARE LOST."
        if self.twice > self.allowed_twice:
            return "More was read twice than that."
        return "" if self.committed else "What is committed is not the end of every partition."

    @property
    def is_right(self) -> bool:
        return not self.fault


def count(ends: Mapping[int, int], members: Mapping[str, Told]) -> tuple[int, int]:
    """Records that nobody has read, and those read too often; `ends` are the end offsets of the partitions."""
    lost = twice = 0
    for partition, end in ends.items():
        times = np.zeros(end, np.int32)
        for told in members.values():
            for p, first, last in told.read:
                if p == partition:
                    times[first : last + 1] += 1
        lost += int(np.count_nonzero(times == 0))
        twice += int(np.maximum(times - 1, 0).sum())
    return lost, twice


def share_and_kill(broker: Broker, records: int, console: Console) -> bool:
    """The whole of it, with a table at the end; `console` hears what happens meanwhile. Returns whether all went well."""
    broker.create_topic(TOPIC, PARTITIONS)
    members: list[_Process] = []
    try:
        for number in (1, 2):
            members.append(_Process(f"member {number}", broker.bootstrap_servers))
        account = _run(broker, records, members, console)
    finally:
        for member in members:
            member.kill()
    _report(members, account)
    return account.is_right


def _run(broker: Broker, records: int, members: list[_Process], console: Console) -> Account:
    survivor, victim = members

    def say(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    def wait_until(is_so: Callable[[], bool], what: str, *alive: _Process) -> None:
        deadline = time.monotonic() + _STALLED_S
        while not is_so():
            for member in alive:
                member.check()
            if time.monotonic() > deadline:
                raise TimedOut(f"{what}: not so after {_STALLED_S:.0f} s")
            time.sleep(0.02)

    def share() -> bool:
        owned = [m.told.owns for m in members]
        return all(owned) and sorted(itertools.chain(*owned)) == list(range(PARTITIONS))

    wait_until(share, "the members share the topic", *members)
    say("; ".join(f"{m.name} (pid {m.process.pid}) has partitions {_listed(m.told.owns)}" for m in members))
    append = _feeder(broker, records)
    for _ in range(_STEPS // 2):
        append()
        time.sleep(_STEP_S)
    wait_until(lambda: bool(survivor.told.read and victim.told.committed), "both read, and commit", *members)
    append()
    wait_until(lambda: victim.told.not_committed > victim.told.given_up, "there is something to read twice", *members)
    victim.kill()
    killed_at = time.monotonic()
    had_read, not_committed = victim.told.records, victim.told.not_committed
    say(
        f"{victim.name} is killed with SIGKILL: it had read {had_read:,} records, {not_committed:,} of them after its last commit"
    )
    for _ in range(_STEPS // 2 - 1):
        append()
        time.sleep(_STEP_S)
    wait_until(lambda: len(survivor.told.owns) == PARTITIONS, "the other member takes over", survivor)
    say(f"{survivor.name} took over {survivor.told.owned_at - killed_at:.1f} s later (session timeout {SESSION_MS / 1000:.1f} s)")
    ends = {p: broker.end_offset(TOPIC, p) for p in range(PARTITIONS)}
    wait_until(lambda: survivor.told.committed == ends, "everything is read and committed", survivor)
    survivor.close()
    lost, twice = count(ends, {m.name: m.told for m in members})
    stored = {tp.partition: found.offset for tp, found in broker.committed(GROUP).items()}
    return Account(sum(ends.values()), lost, twice, sum(m.told.not_committed for m in members), stored == ends)


def _feeder(broker: Broker, records: int) -> Callable[[], None]:
    """A function that appends a fraction of the records to every partition."""
    count = max(1, records // (_STEPS * PARTITIONS))
    templates = []
    for partition, codec in zip(range(PARTITIONS), itertools.cycle(DEMO_CODECS)):
        rows = order_rows(count, seed=partition)
        starts = range(0, count, _RECORDS_PER_BATCH)
        batches = (encode_batch(rows[at : at + _RECORDS_PER_BATCH], base_offset=at, codec=codec) for at in starts)
        templates.append(b"".join(batches))

    def append() -> None:
        for partition, template in enumerate(templates):
            broker.generate(TOPIC, partition, template, 1)

    return append


def _listed(partitions: list[int]) -> str:
    return ", ".join(map(str, partitions))


def _report(members: list[_Process], account: Account) -> None:
    table = Table(title=f"two members of group {GROUP}", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("member", no_wrap=True)
    for name in ("records read", "not committed"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("at the end", no_wrap=True)
    for member, ending in zip(members, ("left the group", "killed half way"), strict=True):
        table.add_row(member.name, f"{member.told.records:,}", f"{member.told.not_committed:,}", ending)
    console = Console()
    console.print(table)
    verdict = "[green]Nothing is lost.[/green]" if account.is_right else f"[red]{account.fault}[/red]"
    console.print(
        f"{account.appended:,} records appended, {account.lost:,} lost, {account.twice:,} read twice, "
        f"of {account.allowed_twice:,} that had not been committed. {verdict}",
        highlight=False,
        soft_wrap=True,
    )
