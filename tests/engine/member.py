"""A member of a classic group on the script's clock, and the part of its caller: polls that do what the group wants done."""

from __future__ import annotations

from typing import Any

from fastfetch.engine.coordinator import Coordinator, State
from fastfetch.engine.membership import Describe, Duty, GiveUp, ShareOut, TakeOver
from fastfetch.protocol.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_subscription,
)
from fastfetch.types import TopicPartition
from tests.engine.script import Asked, Script


def tps(text: str) -> tuple[TopicPartition, ...]:
    """ "t-0 t-1"."""
    return tuple(TopicPartition(topic, int(number)) for topic, _, number in (tp.rpartition("-") for tp in text.split()))


def wants(topics: str = "t", owned: str = "", generation: int = -1, user_data: bytes | None = None) -> bytes:
    """What another member sends to its leader."""
    return encode_subscription(Subscription(tuple(topics.split()), user_data, tps(owned), generation))


def sent(asked: Asked, protocol: str = "range") -> Subscription:
    """What ours has sent for one of its protocols."""
    return decode_subscription(next(p["metadata"] for p in asked.body["protocols"] if p["name"] == protocol))


class Member(Script):
    """Subscribed to `topics`. `heard` is what its listener was told, in order. The test itself answers what is in `by_hand`."""

    def __init__(
        self, partitions: int = 4, nodes: int = 1, *, topics: str = "t", by_hand: str = "Heartbeat", **settings: Any
    ) -> None:
        settings.setdefault("session_timeout_ms", 10_000)
        super().__init__(partitions, nodes, group_id="g", **settings)
        self.auto |= {"OffsetFetch", "LeaveGroup", "Heartbeat"}
        self.auto.difference_update(by_hand.split())
        self.heard: list[tuple[str, str]] = []
        self.raised: list[Exception] = []  # by assignors
        if topics:
            self.subscribe(topics)

    @property
    def member(self) -> Coordinator:
        assert isinstance(self.engine.membership, Coordinator)
        return self.engine.membership

    @property
    def state(self) -> State:
        return self.member.state

    @property
    def owned(self) -> str:
        return words(self.engine.subscription.partitions())

    def subscribe(self, topics: str) -> None:
        self.engine.subscribe(topics.split(), None, self.now)
        self.run()

    def poll(self, ms: int = 0) -> list[tuple[int, int]]:
        """Does what is due, now and for `ms`; raises a fault, or returns (partition, offset) of what is handed out."""
        self.member.poll_began()
        try:
            self.duties()
            if ms:
                self.advance(ms)
                self.duties()
            fault, self.member.fault = self.member.fault, None
            if fault is not None:
                raise fault
            return [] if self.member.is_in_doubt(self.now) else self.take()
        finally:
            self.member.poll_ended(self.now)

    def duties(self) -> None:
        """The first half of a poll."""
        self.run()
        for _ in range(100):
            duty = self.member.duty(self.now)
            if duty is None:
                return
            self.do(duty)
            self.member.done(duty, self.now)
            self.run()
        raise AssertionError("the duties never end")

    def do(self, duty: Duty) -> None:
        match duty:
            case GiveUp():
                if duty.tell:
                    self.heard.append(("lost" if duty.is_lost else "revoked", words(duty.partitions)))
            case TakeOver():
                if duty.assignor is not None and duty.assignment is not None:
                    duty.assignor.on_assignment(duty.assignment, duty.generation)
                self.heard.append(("assigned", words(duty.partitions)))
            case Describe():
                duty.result = {assignor.name: assignor.subscription_user_data(duty.topics) for assignor in duty.assignors}
            case ShareOut():
                try:
                    duty.result = duty.assignor.assign(duty.cluster, duty.subscriptions)
                except Exception as error:
                    duty.error = error
                    self.raised.append(error)

    def tells(self) -> list[tuple[str, str]]:
        """What the listener was told since this was last asked."""
        told, self.heard = self.heard, []
        return told

    # --- how a test gets where it begins ----------------------------------------------------------------------------------

    def join(self, **answer: Any) -> Asked:
        """Polled, and its JoinGroup answered; returns that."""
        self.poll()
        asked = self.expect("JoinGroup")
        self.joined(asked, **answer)
        return asked

    def stable(self, partitions: str = "t-0 t-1", **answer: Any) -> None:
        """In the group and polling, as one who follows, with these partitions."""
        self.join(**answer)
        self.synced(self.expect("SyncGroup"), partitions)
        self.poll()
        assert self.state is State.STABLE
        assert self.owned == partitions
        self.tells()

    def beaten(self, code: int = 0) -> Asked:
        """The next heartbeat is answered with this code."""
        for _ in range(100):
            self.run()
            asked = next((asked for asked in self.asked if asked.api.name == "Heartbeat"), None)
            if asked is not None:
                self.answer(asked, {"error_code": code})
                return asked
            self.advance(100)
        raise AssertionError("no heartbeat in 10 s")

    def shared(self, asked: Asked) -> dict[str, str]:
        """What the leader's SyncGroup gives to whom."""
        return {a["member_id"]: words(decode_assignment(a["assignment"]).partitions) for a in asked.body["assignments"]}


def words(partitions: Any) -> str:
    return " ".join(str(tp) for tp in sorted(partitions))


__all__ = ["Assignment", "Member", "sent", "tps", "wants", "words"]
