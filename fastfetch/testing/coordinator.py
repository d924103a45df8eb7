"""The group APIs of a test broker: (context) to a body, as in `handlers`. What a group does is in `groups`.

A JoinGroup or SyncGroup that has to wait for other members waits here, on `cluster.changed`, and no longer than until the group's
next timer; so no thread is needed that looks after sessions while nobody asks.
"""

from __future__ import annotations

import threading
import time

from fastfetch.protocol import tables

from .groups import NOT_COORDINATOR, UNKNOWN_MEMBER, ClassicGroup, Peer, Waiting, join_error
from .handlers import Body, Context, Handler, group_error

__all__ = ["GROUP_HANDLERS"]

INVALID_GROUP_ID = 24


def join_group(c: Context) -> Body:
    body = c.request.body
    code = group_error(c, body["group_id"]) or (0 if body["group_id"] else INVALID_GROUP_ID)
    if not code and body["member_id"] and body["group_id"] not in c.cluster.groups:
        code = UNKNOWN_MEMBER
    if code:
        answer = join_error(code, body["member_id"])
    else:
        now = time.monotonic()
        group = c.cluster.group(body["group_id"], now)
        answer = _wait(c, group, group.join(body, c.request.version, Peer(c.request.client_id or "", c.peer), now))
    if c.request.version < 7:
        answer = answer | {"protocol_name": answer.get("protocol_name") or ""}
    return answer


def sync_group(c: Context) -> Body:
    group, code = _group_of(c)
    if group is None:
        return {"error_code": code}
    return _wait(c, group, group.sync(c.request.body, time.monotonic()))


def heartbeat(c: Context) -> Body:
    group, code = _group_of(c)
    return {"error_code": code if group is None else group.heartbeat(c.request.body, time.monotonic())}


def leave_group(c: Context) -> Body:
    body, now = c.request.body, time.monotonic()
    code = group_error(c, body["group_id"])
    if code:
        return {"error_code": code, "members": []}
    group = c.cluster.group(body["group_id"], now)
    if c.request.version < 3:
        return {"error_code": group.leave(body["member_id"], None, now)}
    members = []
    for each in body["members"]:
        answered = {"member_id": each["member_id"], "group_instance_id": each["group_instance_id"]}
        members.append(answered | {"error_code": group.leave(each["member_id"], each["group_instance_id"], now)})
    return {"error_code": 0, "members": members}


def _group_of(c: Context) -> tuple[ClassicGroup | None, int]:
    """The group that members ask of, or what they are told instead."""
    name = c.request.body["group_id"]
    code = group_error(c, name) or (0 if name in c.cluster.groups else UNKNOWN_MEMBER)
    return (None if code else c.cluster.group(name, time.monotonic())), code


def _wait(c: Context, group: ClassicGroup, waiting: Waiting) -> Body:
    while waiting.answer is None and c.node.alive:
        now = time.monotonic()
        group.advance(now)
        if waiting.answer is None:
            c.cluster.changed.wait(min(group.next_due() - now, threading.TIMEOUT_MAX))
    return waiting.answer or {"error_code": NOT_COORDINATOR}


GROUP_HANDLERS: dict[int, Handler] = {
    tables.JOIN_GROUP.key: join_group,
    tables.SYNC_GROUP.key: sync_group,
    tables.HEARTBEAT.key: heartbeat,
    tables.LEAVE_GROUP.key: leave_group,
}
