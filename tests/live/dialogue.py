"""What is said to a coordinator and what it answers, written down so that two coordinators can be compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import zip_longest
from types import TracebackType
from typing import Any, Self

from tests.testing.wire import Wire

# Texts, and what is a setting of the broker's.
UNCOMPARED = {"throttle_time_ms", "error_message", "heartbeat_interval_ms"}


class Dialogue:
    """Connections to one coordinator, by name, and the transcript of all answers. Ids that the broker makes get names there, in
    the order in which they turn up.

    topic, topic_id     one with four partitions
    """

    def __init__(self, address: tuple[str, int], group: str, topic: str, topic_id: bytes) -> None:
        self.group, self.topic, self.topic_id = group, topic, topic_id
        self.transcript: list[str] = []
        self._address = address
        self._wires: dict[str, Wire] = {}
        self._asked: dict[str, tuple[str, int]] = {}
        self._names: dict[Any, str] = {group: "<group>", topic: "<topic>", topic_id: "<id>"}
        self._members: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for wire in self._wires.values():
            wire.__exit__(kind, error, trace)

    def use(self, group: str) -> None:
        """Go on about another group, which is called the same in the transcript."""
        self.group = group
        self._names[group] = "<group>"

    def forget(self) -> None:
        """Begin the transcript anew."""
        self.transcript.clear()
        self._members.clear()

    def send(self, who: str, api: str, version: int, **body: Any) -> None:
        """Ask without waiting for the answer."""
        if who not in self._wires:
            self._wires[who] = Wire(self._address)
        self._asked[who] = (api, version)
        self._wires[who].send(api, version, **body)

    def receive(self, who: str) -> dict[str, Any]:
        """The answer to what `who` asked."""
        api, version = self._asked.pop(who)
        answer = self._wires[who].read(api, version)
        self._write(f"{who}: {api} {version}", answer)
        return answer

    def ask(self, who: str, api: str, version: int, **body: Any) -> dict[str, Any]:
        self.send(who, api, version, **body)
        return self.receive(who)

    def until(
        self, who: str, api: str, version: int, body: dict[str, Any], is_so: Callable[[dict[str, Any]], bool]
    ) -> dict[str, Any]:
        """Ask again and again until the answer is as it should be; only that one is written down."""
        deadline = time.monotonic() + 20
        while True:
            self.send(who, api, version, **body)
            self._asked.pop(who)
            answer = self._wires[who].read(api, version)
            if is_so(answer) or time.monotonic() > deadline:
                self._write(f"{who}: {api} {version}", answer)
                return answer
            time.sleep(0.05)

    def _write(self, what: str, answer: dict[str, Any]) -> None:
        self.transcript.append(f"{what} -> {self._plain(answer)}")

    def _plain(self, value: Any, field: str = "") -> Any:
        if isinstance(value, dict):
            return {name: self._plain(each, name) for name, each in value.items() if name not in UNCOMPARED}
        if isinstance(value, list):
            return sorted((self._plain(each, field) for each in value), key=str)
        if field in ("member_id", "leader") and value not in ("", None):
            self._members.setdefault(value, f"<member {len(self._members) + 1}>")
            return self._members[value]
        return self._names.get(value, value) if isinstance(value, str | bytes) else value


def differences(ours: Sequence[str], real: Sequence[str]) -> str:
    """Answers that differ, with their number and both forms."""
    pairs = enumerate(zip_longest(ours, real))
    return "\n".join(f"{number}\n  ours {mine}\n  real {theirs}" for number, (mine, theirs) in pairs if mine != theirs)
