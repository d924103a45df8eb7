"""The group APIs of a test broker: (context) to a body, as in `handlers`. What a group does is in `groups` and `groups_epochs`.

A JoinGroup or SyncGroup that has to wait for other members waits here, on `cluster.changed`, and no longer than until the group's
next timer; so no thread is needed that looks after sessions while nobody asks.
"""

from __future__ import annotations

import threading
import time

from fastfetch.protocol import tables

from .groups import INCONSISTENT_PROTOCOL, NOT_COORDINATOR, STABLE, UNKNOWN_MEMBER, ClassicGroup, Peer, Waiting, join_error
from .groups_epochs import JOIN, EpochGroup, EpochMember, Partitions, RefusedError, by_topic, validate
from .handlers import Body, Context, Handler, group_error

__all__ = ["GROUP_HANDLERS"]

INVALID_GROUP_ID, INVALID_REQUEST, GROUP_ID_NOT_FOUND = 24, 42, 69

_ALL_OPERATIONS = 3400  # of groups, one bit each: nobody is kept from anything
_CONSUMER_MEMBER = 1  # its kind in ConsumerGroupDescribe


# ----------------------------------------------------------------------------------------------------------- classic protocol


def join_group(c: Context) -> Body:
    body, now = c.request.body, time.monotonic()
    name, member_id = body["group_id"], body["member_id"]
    code = group_error(c, name) or (0 if name else INVALID_GROUP_ID)
    if not code and member_id and name not in c.cluster.groups:
        code = UNKNOWN_MEMBER
    group = None if code else c.cluster.classic_group(name, now)
    if group is None:
        answer = join_error(code or INCONSISTENT_PROTOCOL, member_id)
    else:
        answer = _wait(c, group, group.join(body, c.request.version, _peer(c), now))
    if c.request.version < 7:
        answer = answer | {"protocol_name": answer.get("protocol_name") or ""}
    return answer


def sync_group(c: Context) -> Body:
    group, code = _classic(c)
    if group is None:
        return {"error_code": code}
    return _wait(c, group, group.sync(c.request.body, c.request.version, time.monotonic()))


def heartbeat(c: Context) -> Body:
    group, code = _classic(c)
    return {"error_code": code if group is None else group.heartbeat(c.request.body, time.monotonic())}


def leave_group(c: Context) -> Body:
    body, now = c.request.body, time.monotonic()
    code = group_error(c, body["group_id"])
    if code:
        return {"error_code": code, "members": []}
    group, _ = _classic(c)

    def leave(member_id: str, instance_id: str | None) -> int:
        return UNKNOWN_MEMBER if group is None else group.leave(member_id, instance_id, now)

    if c.request.version < 3:
        return {"error_code": leave(body["member_id"], None)}
    members = []
    for each in body["members"]:
        named = {"member_id": each["member_id"], "group_instance_id": each["group_instance_id"]}
        members.append(named | {"error_code": leave(each["member_id"], each["group_instance_id"])})
    return {"error_code": 0, "members": members}


def _classic(c: Context) -> tuple[ClassicGroup | None, int]:
    """The group that members ask of, or what they are told instead."""
    name = c.request.body["group_id"]
    code = group_error(c, name)
    group = None if code else c.cluster.group(name, time.monotonic())
    return (group, 0) if isinstance(group, ClassicGroup) else (None, code or UNKNOWN_MEMBER)


def _wait(c: Context, group: ClassicGroup, waiting: Waiting) -> Body:
    while waiting.answer is None and c.node.alive:
        now = time.monotonic()
        group.advance(now)
        if waiting.answer is None:
            c.cluster.changed.wait(min(group.next_due() - now, threading.TIMEOUT_MAX))
    return waiting.answer or {"error_code": NOT_COORDINATOR}


def _peer(c: Context) -> Peer:
    return Peer(c.request.client_id or "", f"/{c.peer}")


# ---------------------------------------------------------------------------------------------------------- consumer protocol


def consumer_group_heartbeat(c: Context) -> Body:
    body, now = c.request.body, time.monotonic()
    name = body["group_id"]
    try:
        if not name:
            raise RefusedError(INVALID_REQUEST, "GroupId can't be empty.")
        validate(body, c.request.version)
        if code := group_error(c, name):
            raise RefusedError(code, "")
        group = c.cluster.epoch_group(name, now) if body["member_epoch"] == JOIN else c.cluster.group(name, now)
        if not isinstance(group, EpochGroup):
            raise RefusedError(GROUP_ID_NOT_FOUND, f"Group {name} is not a consumer group.")
        return group.heartbeat(body, _peer(c), c.cluster.shapes(), now)
    except RefusedError as why:
        return {"error_code": why.code, "error_message": str(why) or None}


# ---------------------------------------------------------------------------------------------------------- list and describe


def list_groups(c: Context) -> Body:
    """The groups that this node coordinates."""
    body, now = c.request.body, time.monotonic()
    states = {s.lower() for s in body["states_filter"]}
    types = {t.lower() for t in body["types_filter"]}
    groups = []
    for name in sorted({*c.cluster.groups, *c.cluster.offsets}):
        group = c.cluster.group(name, now)
        state, kind, protocol_type = "Empty", "classic", ""
        if isinstance(group, EpochGroup):
            state, kind, protocol_type = group.state, "consumer", "consumer"
        elif group is not None:
            state, protocol_type = group.state, group.protocol_type
        wanted = (not states or state.lower() in states) and (not types or kind in types)
        if wanted and not group_error(c, name):
            groups.append({"group_id": name, "protocol_type": protocol_type, "group_state": state, "group_type": kind})
    return {"error_code": 0, "groups": groups}


def describe_groups(c: Context) -> Body:
    return {"groups": [{"group_id": name} | _describe_classic(c, name) for name in c.request.body["groups"]]}


def _describe_classic(c: Context, name: str) -> Body:
    out: Body = {"error_code": 0, "group_state": "Dead", "protocol_type": "", "protocol_data": "", "members": []}
    if code := group_error(c, name):
        return out | {"error_code": code, "group_state": ""}
    group = c.cluster.group(name, time.monotonic())
    if isinstance(group, EpochGroup) or (group is None and name not in c.cluster.offsets):
        # Before version 6 a group that is not there was "Dead", and no error.
        missing = {"error_code": GROUP_ID_NOT_FOUND, "error_message": f"Group {name} is not a classic group."}
        return out | (missing if c.request.version >= 6 else {})
    if c.request.body["include_authorized_operations"]:
        out["authorized_operations"] = _ALL_OPERATIONS
    if group is None:
        return out | {"group_state": "Empty"}
    is_stable = group.state == STABLE
    members = [
        {
            "member_id": m.id,
            "group_instance_id": m.instance_id,
            "client_id": m.peer.client_id,
            "client_host": m.peer.host,
            "member_metadata": m.metadata(group.protocol) if is_stable else b"",
            "member_assignment": m.assignment,
        }
        for m in group.members.values()
    ]
    protocol = group.protocol if is_stable else ""
    return out | {
        "group_state": group.state,
        "protocol_type": group.protocol_type,
        "protocol_data": protocol,
        "members": members,
    }


def consumer_group_describe(c: Context) -> Body:
    return {"groups": [{"group_id": name} | _describe_epochs(c, name) for name in c.request.body["group_ids"]]}


def _describe_epochs(c: Context, name: str) -> Body:
    group, code = c.cluster.group(name, time.monotonic()), group_error(c, name)
    if code or not isinstance(group, EpochGroup):
        message = None if code else f"Group {name} is not a consumer group."
        return {"error_code": code or GROUP_ID_NOT_FOUND, "error_message": message}
    out = {
        "error_code": 0,
        "group_state": group.state,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assigned_epoch,
        "assignor_name": group.assignor,
        "members": [_describe_member(c, m, group.target.get(m.id, frozenset())) for m in group.members.values()],
    }
    return out | ({"authorized_operations": _ALL_OPERATIONS} if c.request.body["include_authorized_operations"] else {})


def _describe_member(c: Context, member: EpochMember, target: Partitions) -> Body:
    def named(partitions: Partitions) -> Body:
        topics = [(c.cluster.by_id(t["topic_id"]), t) for t in by_topic(partitions)]
        return {"topic_partitions": [t | {"topic_name": topic.name} for topic, t in topics if topic is not None]}

    return {
        "member_id": member.id,
        "instance_id": member.instance_id,
        "rack_id": member.rack,
        "member_epoch": member.epoch,
        "client_id": member.peer.client_id,
        "client_host": member.peer.host,
        "subscribed_topic_names": sorted(member.names),
        "subscribed_topic_regex": member.regex,
        "assignment": named(member.assigned),
        "target_assignment": named(target),
        "member_type": _CONSUMER_MEMBER,
    }


GROUP_HANDLERS: dict[int, Handler] = {
    tables.JOIN_GROUP.key: join_group,
    tables.SYNC_GROUP.key: sync_group,
    tables.HEARTBEAT.key: heartbeat,
    tables.LEAVE_GROUP.key: leave_group,
    tables.CONSUMER_GROUP_HEARTBEAT.key: consumer_group_heartbeat,
    tables.LIST_GROUPS.key: list_groups,
    tables.DESCRIBE_GROUPS.key: describe_groups,
    tables.CONSUMER_GROUP_DESCRIBE.key: consumer_group_describe,
}
