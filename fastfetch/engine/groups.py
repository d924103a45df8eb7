"""Asking about groups, whichever they are: which ones there are, and who is in them. Nothing is joined and nothing changed.

Each broker knows the groups that it coordinates and no others. So a listing asks all of them, and each may fail by itself: what
comes out says who is missing. A description is asked of the group's own coordinator, in the words of the group's protocol:
ConsumerGroupDescribe (KIP-848), and DescribeGroups for what that does not know.

Whoever asks sets a deadline. What is not known by then is told as an error of its own, beside what is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fastfetch.config import ConsumerConfig
from fastfetch.engine.backoff import Backoff, Timer
from fastfetch.engine.channels import Channel, Channels, Lane
from fastfetch.engine.metadata import Cluster, is_address
from fastfetch.engine.pending import Pending
from fastfetch.errors import FastFetchError, ProtocolError, UnsupportedVersionError, broker_error, is_retriable
from fastfetch.errors import TimeoutError as TimedOut
from fastfetch.protocol import Api, tables
from fastfetch.protocol.consumer_protocol import decode_assignment
from fastfetch.types import TopicPartition

__all__ = ["GROUP_ID_NOT_FOUND", "Described", "GroupDescription", "Groups", "ListedGroup", "Listing", "Member"]

GROUP_ID_NOT_FOUND = 69
UNSUPPORTED_VERSION = 35
MOVED = frozenset({15, 16})

# A broker whose connection fails so often in a row is down: others need not wait for it.
TRIES = 3
_MEMBER_TYPES = {0: "classic", 1: "consumer"}


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """type          "classic", "consumer", "share", "streams"; empty where the broker is too old to say (before 3.8)
    state         such as "Stable", "Empty"; empty where the broker is too old to say (before 2.6)
    protocol      of a classic group: "consumer", "connect", …; empty if it only ever stored offsets
    coordinator   node id of the broker that told of it
    """

    group_id: str
    type: str
    state: str
    protocol: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class Listing:
    """The groups by name, and why the brokers are missing that told nothing, by node id."""

    groups: tuple[ListedGroup, ...]
    missing: Mapping[int, FastFetchError]


@dataclass(frozen=True, slots=True)
class Member:
    """epoch         KIP-848: of the assignment that it works with; None in a classic group
    protocol      "classic" or "consumer"; in a group under KIP-848 both may be there (None: the broker does not say)
    assignment    None: not in the words of the consumer protocol, as those of Kafka Connect
    target        what it shall have once others have given it up; None in a classic group
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    epoch: int | None
    protocol: str | None
    assignment: tuple[TopicPartition, ...] | None
    target: tuple[TopicPartition, ...] | None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """type, state, protocol   as in ListedGroup
    coordinator, address    node id, and host:port
    assignor                empty if none is chosen
    epoch                   KIP-848: of the group; None in a classic group, whose generation no broker tells
    assignment_epoch        KIP-848: of the target assignment
    """

    group_id: str
    type: str
    state: str
    protocol: str
    coordinator: int
    address: str
    assignor: str
    epoch: int | None
    assignment_epoch: int | None
    members: tuple[Member, ...]


Described = dict[str, GroupDescription | FastFetchError]


class Part:
    """One thing to be asked, of one broker at a time."""

    __slots__ = ("attempts", "in_flight", "retry_at_ms", "trouble")

    def __init__(self) -> None:
        self.in_flight = False
        self.attempts = 0
        self.retry_at_ms = 0
        self.trouble: FastFetchError | None = None  # why there is no answer yet

    def late(self, what: str) -> TimedOut:
        return TimedOut(what if self.trouble is None else f"{what}: {self.trouble}")


class BrokerPart(Part):
    """The groups of one broker. `patience` is the number of failures in a row by which it is down."""

    __slots__ = ("node_id", "patience")

    def __init__(self, node_id: int, patience: int) -> None:
        super().__init__()
        self.node_id = node_id
        self.patience = patience


class GroupPart(Part):
    """One group to be described. Its coordinator is None while it is being found."""

    __slots__ = ("address", "group_id", "is_classic", "node_id")

    def __init__(self, group_id: str) -> None:
        super().__init__()
        self.group_id = group_id
        self.node_id: int | None = None
        self.address = ""
        self.is_classic = False  # so far as we know


class ListQuestion:
    """`left` is None until the brokers are known."""

    __slots__ = ("deadline_ms", "found", "has_answers", "left", "missing", "pending", "states", "types")

    def __init__(self, states: Collection[str], types: Collection[str], deadline_ms: int) -> None:
        self.states = list(states)
        self.types = list(types)
        self.deadline_ms = deadline_ms
        self.left: dict[int, BrokerPart] | None = None
        self.found: dict[str, ListedGroup] = {}
        self.missing: dict[int, FastFetchError] = {}
        self.has_answers = False
        self.pending: Pending[Listing] = Pending()

    def settle(self, part: BrokerPart, error: FastFetchError | None) -> None:
        """This broker has told what it knows, or will not."""
        assert self.left is not None
        del self.left[part.node_id]
        if error is None:
            self.has_answers = True
        else:
            self.missing[part.node_id] = error
        if self.left:
            return
        if self.has_answers:
            groups = sorted(self.found.values(), key=lambda group: group.group_id)
            self.pending.resolve(Listing(tuple(groups), self.missing))
        else:
            self.pending.fail(error or next(iter(self.missing.values())))


class DescribeQuestion:
    __slots__ = ("deadline_ms", "found", "left", "pending")

    def __init__(self, group_ids: Iterable[str], deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms
        self.left = {group_id: GroupPart(group_id) for group_id in group_ids}
        self.found: Described = {}
        self.pending: Pending[Described] = Pending()
        if not self.left:
            self.pending.resolve({})

    def settle(self, part: GroupPart, outcome: GroupDescription | FastFetchError) -> None:
        del self.left[part.group_id]
        self.found[part.group_id] = outcome
        if not self.left:
            self.pending.resolve(self.found)


class Groups:
    """Asks brokers about groups until every one has answered, is found to be down, or the time is up."""

    def __init__(self, config: ConsumerConfig, channels: Channels, cluster: Cluster, timer: Timer, seed: int = 0) -> None:
        self._channels = channels
        self._cluster = cluster
        self._timer = timer
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, seed)
        self._listings: list[ListQuestion] = []
        self._descriptions: list[DescribeQuestion] = []
        self.has_news = False  # an answer is there by the clock alone; the engine clears it

    def list_groups(self, states: Collection[str], types: Collection[str], deadline_ms: int) -> Pending[Listing]:
        """All groups, of these states (KIP-518) and types (KIP-848) unless empty. Fails only if no broker at all answers; a
        broker that does not know the filter counts as missing."""
        question = ListQuestion(states, types, deadline_ms)
        self._listings.append(question)
        return question.pending

    def describe(self, group_ids: Iterable[str], deadline_ms: int) -> Pending[Described]:
        """What each of these groups is, or the error that stands in the way: a group that does not exist is
        GROUP_ID_NOT_FOUND, as is one that is neither of classic nor of consumer type."""
        question = DescribeQuestion(group_ids, deadline_ms)
        self._descriptions.append(question)
        return question.pending

    def pump(self, now_ms: int) -> None:
        if self._listings:
            self._listings = [question for question in self._listings if not question.pending.done]
            for listing in self._listings:
                self._pump_listing(listing, now_ms)
        if self._descriptions:
            self._descriptions = [question for question in self._descriptions if not question.pending.done]
            for description in self._descriptions:
                self._pump_description(description, now_ms)

    # --- listing --------------------------------------------------------------------------------------------------------

    def _pump_listing(self, question: ListQuestion, now_ms: int) -> None:
        if question.left is None:
            nodes = [self._channels.nodes[node_id] for node_id in self._cluster.brokers if node_id in self._channels.nodes]
            if not nodes:
                return  # metadata are on their way
            question.left = {node.node_id: BrokerPart(node.node_id, node.failures + TRIES) for node in nodes}
        for part in list(question.left.values()):
            if self._is_late(question.deadline_ms, now_ms):
                question.settle(part, part.late(f"node {part.node_id} has not answered in time"))
            elif self._is_due(part, now_ms):
                self._ask_broker(question, part, now_ms)

    def _ask_broker(self, question: ListQuestion, part: BrokerPart, now_ms: int) -> None:
        channel = self._channels.ready(part.node_id, Lane.CONTROL, now_ms)
        if channel is None:
            node = self._channels.nodes.get(part.node_id)
            if node is None:
                question.settle(part, FastFetchError(f"node {part.node_id} has left the cluster"))
            elif node.failures >= part.patience and node.last_error is not None:
                question.settle(part, node.last_error)
            return
        try:
            at_least = 5 if question.types else 4 if question.states else 0
            version = self._channels.version(channel, tables.LIST_GROUPS, at_least=at_least)
        except UnsupportedVersionError as error:
            question.settle(part, error)
            return
        body: dict[str, Any] = {"states_filter": question.states} if question.states else {}
        if question.types:
            body["types_filter"] = question.types

        def answered(body: Any, now_ms: int) -> None:
            part.in_flight = False
            if question.pending.done:
                return
            code = body["error_code"]
            if code == 0:
                for each in body["groups"]:
                    group = ListedGroup(
                        each["group_id"], each["group_type"].lower(), each["group_state"], each["protocol_type"], part.node_id
                    )
                    question.found[group.group_id] = group
                question.settle(part, None)
                return
            error = broker_error(code, f"listing the groups of node {part.node_id} failed")
            if is_retriable(code):
                self._again(part, error, now_ms)
            else:
                question.settle(part, error)

        self._send(channel, tables.LIST_GROUPS, version, body, [part], answered, now_ms)

    # --- describing -----------------------------------------------------------------------------------------------------

    def _pump_description(self, question: DescribeQuestion, now_ms: int) -> None:
        if question.deadline_ms <= now_ms and not self._channels.is_connected:
            return  # whoever waits will find that no broker can be reached, and say so of none of the groups
        lost: list[GroupPart] = []
        by_node: dict[tuple[int, bool], list[GroupPart]] = {}
        for part in list(question.left.values()):
            if self._is_late(question.deadline_ms, now_ms):
                question.settle(part, part.late(f"nobody has told of group {part.group_id!r} in time"))
            elif not self._is_due(part, now_ms):
                continue
            elif part.node_id is None:
                lost.append(part)
            else:
                by_node.setdefault((part.node_id, part.is_classic), []).append(part)
        if lost:
            self._find(question, lost, now_ms)
        for (node_id, is_classic), parts in by_node.items():
            channel = self._channels.ready(node_id, Lane.CONTROL, now_ms)
            if channel is not None:
                self._ask_coordinator(question, channel, is_classic, parts, now_ms)
            elif self._channels.is_down(node_id, Lane.CONTROL):
                for part in parts:
                    self._lose_coordinator(part, FastFetchError(f"node {node_id} can't be reached"), now_ms)

    def _find(self, question: DescribeQuestion, parts: list[GroupPart], now_ms: int) -> None:
        """Ask for the coordinators of groups: all at once from version 4 on, else one by one."""
        channel = self._channels.any_ready(now_ms)
        if channel is None:
            return
        try:
            version = self._channels.version(channel, tables.FIND_COORDINATOR)
        except UnsupportedVersionError as error:
            for part in parts:
                question.settle(part, error)
            return
        if version < 4:
            for part in parts:
                self._find_one(question, channel, version, part, now_ms)
            return

        def answered(body: Any, now_ms: int) -> None:
            found = {each["key"]: each for each in body["coordinators"]}
            for part in parts:
                self._found(question, part, found.get(part.group_id), now_ms)

        body = {"key_type": 0, "coordinator_keys": [part.group_id for part in parts]}
        self._send(channel, tables.FIND_COORDINATOR, version, body, parts, answered, now_ms)

    def _find_one(self, question: DescribeQuestion, channel: Channel, version: int, part: GroupPart, now_ms: int) -> None:
        def answered(body: Any, now_ms: int) -> None:
            self._found(question, part, body, now_ms)

        body: dict[str, Any] = {"key": part.group_id} | ({"key_type": 0} if version >= 1 else {})
        self._send(channel, tables.FIND_COORDINATOR, version, body, [part], answered, now_ms)

    def _found(self, question: DescribeQuestion, part: GroupPart, found: Any, now_ms: int) -> None:
        part.in_flight = False
        if question.pending.done:
            return
        code = 15 if found is None else found["error_code"]
        if code == 0 and is_address(found["node_id"], found["host"], found["port"]):
            part.node_id, part.address = found["node_id"], f"{found['host']}:{found['port']}"
            self._channels.add_broker(found["node_id"], found["host"], found["port"], now_ms)
            return
        error = _refusal(code or 15, f"finding the coordinator of group {part.group_id!r} failed", part)
        if code == 0 or is_retriable(code):
            self._again(part, error, now_ms)
        else:
            question.settle(part, error)

    def _ask_coordinator(
        self, question: DescribeQuestion, channel: Channel, is_classic: bool, parts: list[GroupPart], now_ms: int
    ) -> None:
        api = tables.DESCRIBE_GROUPS if is_classic else tables.CONSUMER_GROUP_DESCRIBE
        try:
            version = self._channels.version(channel, api)
        except UnsupportedVersionError as error:
            for part in parts:
                if is_classic:
                    question.settle(part, error)
                part.is_classic = True
            if not is_classic:  # a broker before 3.7: all its groups are
                self._ask_coordinator(question, channel, True, parts, now_ms)
            return

        def answered(body: Any, now_ms: int) -> None:
            told = {each["group_id"]: each for each in body["groups"]}
            for part in parts:
                part.in_flight = False
                if not question.pending.done:
                    self._described(question, part, told.get(part.group_id), now_ms)

        body = {"groups" if is_classic else "group_ids": [part.group_id for part in parts]}
        self._send(channel, api, version, body, parts, answered, now_ms)

    def _described(self, question: DescribeQuestion, part: GroupPart, told: Any, now_ms: int) -> None:
        # Left out of the answer: not known yet.
        code = 15 if told is None else told["error_code"]
        error = _refusal(code, f"describing group {part.group_id!r} failed", part)
        if code in MOVED:
            self._lose_coordinator(part, error, now_ms)
        elif is_retriable(code):
            self._again(part, error, now_ms)
        elif not part.is_classic and code in (GROUP_ID_NOT_FOUND, UNSUPPORTED_VERSION):
            part.is_classic = True
        elif code == GROUP_ID_NOT_FOUND or (code == 0 and told["group_state"] == "Dead"):
            # Before version 6 of DescribeGroups every name was that of a group, if only of a dead one.
            question.settle(part, broker_error(GROUP_ID_NOT_FOUND, f"group {part.group_id!r} does not exist"))
        elif code != 0:
            question.settle(part, error)
        else:
            question.settle(part, _classic_group(told, part) if part.is_classic else _consumer_group(told, part))

    # --- inside ---------------------------------------------------------------------------------------------------------

    def _send(
        self,
        channel: Channel,
        api: Api,
        version: int,
        body: Mapping[str, Any],
        parts: Collection[Part],
        answered: Callable[[Any, int], None],
        now_ms: int,
    ) -> None:
        def failed(error: FastFetchError, now_ms: int) -> None:
            for part in parts:
                part.in_flight = False
                if isinstance(part, GroupPart):
                    self._lose_coordinator(part, error, now_ms)
                else:
                    self._again(part, error, now_ms)

        for part in parts:
            part.in_flight = True
        self._channels.send(channel, api, version, body, now_ms, on_answer=answered, on_failure=failed)

    def _is_late(self, deadline_ms: int, now_ms: int) -> bool:
        if deadline_ms > now_ms:
            self._timer.at(deadline_ms)
            return False
        self.has_news = True
        return True

    def _is_due(self, part: Part, now_ms: int) -> bool:
        if part.in_flight:
            return False
        if part.retry_at_ms > now_ms:
            self._timer.at(part.retry_at_ms)
            return False
        return True

    def _again(self, part: Part, error: FastFetchError, now_ms: int) -> None:
        part.trouble = error
        part.attempts += 1
        part.retry_at_ms = now_ms + self._backoff.delay_ms(part.attempts)
        self._timer.at(part.retry_at_ms)

    def _lose_coordinator(self, part: GroupPart, error: FastFetchError, now_ms: int) -> None:
        part.node_id = None
        self._again(part, error, now_ms)


def _refusal(code: int, what: str, part: GroupPart) -> FastFetchError:
    return broker_error(code, f"not allowed to use group {part.group_id!r}" if code == 30 else what)


def _classic_group(told: Any, part: GroupPart) -> GroupDescription:
    assert part.node_id is not None
    is_consumer = told["protocol_type"] == "consumer"
    members = tuple(
        Member(
            each["member_id"],
            each["group_instance_id"],
            each["client_id"],
            each["client_host"],
            None,
            "classic",
            _assignment(each["member_assignment"]) if is_consumer else None,
            None,
        )
        for each in told["members"]
    )
    return GroupDescription(
        part.group_id, "classic", told["group_state"], told["protocol_type"], part.node_id, part.address, told["protocol_data"],
        None, None, members,
    )  # fmt: skip


def _consumer_group(told: Any, part: GroupPart) -> GroupDescription:
    assert part.node_id is not None
    members = tuple(
        Member(
            each["member_id"],
            each["instance_id"],
            each["client_id"],
            each["client_host"],
            each["member_epoch"],
            _MEMBER_TYPES.get(each["member_type"]),
            _partitions(each["assignment"]),
            _partitions(each["target_assignment"]),
        )
        for each in told["members"]
    )
    return GroupDescription(
        part.group_id, "consumer", told["group_state"], "consumer", part.node_id, part.address, told["assignor_name"],
        told["group_epoch"], told["assignment_epoch"], members,
    )  # fmt: skip


def _assignment(data: bytes) -> tuple[TopicPartition, ...] | None:
    """Of a classic member; empty while the group rebalances."""
    try:
        return tuple(sorted(decode_assignment(data).partitions)) if data else ()
    except ProtocolError:
        return None


def _partitions(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(t["topic_name"], p) for t in assignment["topic_partitions"] for p in t["partitions"]))
