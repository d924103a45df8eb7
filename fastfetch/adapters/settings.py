"""What the constructors of other clients take, in the words of ours."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

__all__ = ["say_once", "servers", "strategies"]

log = logging.getLogger("fastfetch.adapters")

DEFAULT_PORT = 9092

_said: set[tuple[str, str]] = set()


def say_once(client: str, key: str, why: str) -> None:
    """Log, once in a process, that a setting that was given has no effect here, and why."""
    if (client, key) not in _said:
        _said.add((client, key))
        log.warning("%s: %s has no effect here: %s", client, key, why)


def servers(given: str | Iterable[str]) -> list[str]:
    """Addresses with their ports: `"a,b:9093"` is `["a:9092", "b:9093"]`. ConsumerConfig refuses what is no address."""
    parts = given.split(",") if isinstance(given, str) else list(given)
    return [_with_port(part.strip()) if isinstance(part, str) else part for part in parts]


def _with_port(server: str) -> str:
    host, colon, port = server.rpartition(":")
    if not server:
        return server
    if server.endswith("]"):  # [::1]
        return f"{server}:{DEFAULT_PORT}"
    if ":" in host and not host.endswith("]"):  # ::1, which can't have a port
        return f"[{server}]:{DEFAULT_PORT}"
    return server if colon and port else f"{server.rstrip(':')}:{DEFAULT_PORT}"


def strategies(given: Any) -> tuple[Any, ...]:
    """Assignors of a peer's (classes or objects that are called "range", "roundrobin", "sticky" or "cooperative-sticky") as those
    of that name here; everything else as it is, for ConsumerConfig to check."""
    known = {"range", "roundrobin", "sticky", "cooperative-sticky"}
    entries = given if isinstance(given, list | tuple) else [given]
    return tuple(_name_of(entry) if _name_of(entry) in known else entry for entry in entries)


def _name_of(entry: Any) -> Any:
    # A subclass of a user's with the same name is no stand-in for ours.
    return getattr(entry, "name", None) if _module_of(entry).startswith(("aiokafka.", "kafka.")) else None


def _module_of(entry: Any) -> str:
    return str(getattr(entry if isinstance(entry, type) else type(entry), "__module__", ""))
