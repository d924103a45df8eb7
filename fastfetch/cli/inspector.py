"""The consumer of the commands that only ask: it can also be asked about groups, which is no business of the public one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from fastfetch.consumer import Consumer
from fastfetch.core import Call, Steps
from fastfetch.engine.groups import GROUP_ID_NOT_FOUND, Described, GroupDescription, Listing
from fastfetch.engine.pending import Pending
from fastfetch.errors import BrokerError, FastFetchError
from fastfetch.net.thread import now_ms
from fastfetch.types import TopicPartition

__all__ = ["Inspector"]

T = TypeVar("T")


class Inspector(Consumer):
    def list_groups(self, states: Collection[str] = (), types: Collection[str] = ()) -> Listing:
        """All groups of these states and types, and the brokers that told nothing. Raises if none did."""
        return self._run(
            self._inquire(lambda until_ms: self._engine.groups.list_groups(states, types, until_ms), "list of groups")
        )

    def describe_groups(self, group_ids: Iterable[str]) -> Described:
        """Each group as its coordinator describes it, or the error that stands in the way."""
        names = list(group_ids)
        return self._run(self._inquire(lambda until_ms: self._engine.groups.describe(names, until_ms), "description of groups"))

    def describe_group(self, group_id: str) -> GroupDescription | None:
        """The same of one; None if there is none of that name. Raises what stands in the way."""
        found = self.describe_groups([group_id])[group_id]
        if isinstance(found, GroupDescription):
            return found
        if not isinstance(found, BrokerError) or found.code != GROUP_ID_NOT_FOUND:
            raise found
        # It may be there all the same and of another type.
        for group in self.list_groups().groups:
            if group.group_id == group_id and group.type not in ("", "classic", "consumer"):
                raise FastFetchError(f"group {group_id!r} is a {group.type} group: not one of consumers")
        return None

    def assigned(self) -> set[TopicPartition]:
        """What the members of the group have, as far as can be told."""
        found = self.describe_group(self.config.group_id or "")
        return {tp for member in found.members for tp in member.assignment or ()} if found is not None else set()

    def _inquire(self, start: Callable[[int], Pending[T]], what: str) -> Steps[threading.Lock, T]:
        # The engine ends earlier than the wait, with what it has by then.
        limit_ms = self.config.default_api_timeout_ms
        with Call(self, what):
            return (yield from self._ask(lambda: start(now_ms() + limit_ms - limit_ms // 10), limit_ms, f"the {what}"))
