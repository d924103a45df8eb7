"""The consumer's settings: Kafka's names, checked when the consumer is made.

A setting is given as a keyword with underscores or in a mapping with Kafka's dots: `Consumer(group_id="g")` and
`Consumer({"group.id": "g"})` are the same. Values may be strings, as in a .properties file ("500", "true").

Defaults are those of Kafka's Java consumer 4.1, except:

  allow_auto_create_topics  False, not True: reading must not write, and a mistyped topic would be created instead of reported.
  receive_buffer_bytes      -1 (the system's autotuning), not 64 KiB, which caps a connection at 64 KiB per round trip.
  max_poll_records          500, for `poll` and iteration. `poll_blocks` hands out whole blocks unless it was set: a block is
                            columns, and cutting it into 500 rows costs more per call than the rows do.
  heartbeat_interval_ms     3000, but no more than a third of the session timeout: who shortens only the session would
                            otherwise be thrown out after one lost heartbeat.
  max_buffered_bytes, max_batch_bytes, receive_message_max_bytes, decode_threads, on_corrupt, on_skipped, on_stats,
  statistics_interval_ms    have no counterpart there.
"""

from __future__ import annotations

import difflib
import inspect
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from .errors import ConfigError

__all__ = ["ConsumerConfig", "parse_bootstrap_servers"]

log = logging.getLogger("fastfetch.config")

_INT32_MAX = 2**31 - 1
_HEARTBEAT_MS = 3_000

# Kafka's assignors, by their names on the wire and by the class names that Java's configuration has for them.
_STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky")
_JAVA_STRATEGIES = {
    f"org.apache.kafka.clients.consumer.{name}Assignor": strategy
    for name, strategy in zip(("Range", "RoundRobin", "Sticky", "CooperativeSticky"), _STRATEGIES, strict=True)
}
_ASSIGNOR_METHODS = ("assign", "subscription_user_data", "on_assignment")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """Checked settings. `_ms` are milliseconds, `_bytes` are bytes. `explicit` holds the names that the caller set.

    partition_assignment_strategy    names of Kafka's assignors, assignors and classes of assignors, the preferred one first
    """

    bootstrap_servers: tuple[tuple[str, int], ...]
    client_id: str = "fastfetch"
    group_id: str | None = None
    group_instance_id: str | None = None
    group_protocol: str = "classic"
    group_remote_assignor: str | None = None
    partition_assignment_strategy: tuple[Any, ...] = ("range", "cooperative-sticky")
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = _HEARTBEAT_MS
    max_poll_interval_ms: int = 300_000
    exclude_internal_topics: bool = True
    auto_offset_reset: str = "latest"
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    isolation_level: str = "read_uncommitted"
    check_crcs: bool = True
    on_corrupt: str = "raise"
    on_skipped: Callable[[Any], object] | None = None
    on_stats: Callable[[dict[str, Any]], object] | None = None
    statistics_interval_ms: int = 10_000
    client_rack: str = ""
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 50 << 20
    fetch_max_wait_ms: int = 500
    max_partition_fetch_bytes: int = 1 << 20
    max_poll_records: int = 500
    max_buffered_bytes: int = 64 << 20
    max_batch_bytes: int = 64 << 20
    receive_message_max_bytes: int = 100_000_000
    decode_threads: int = 1
    metadata_max_age_ms: int = 300_000
    allow_auto_create_topics: bool = False
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    socket_connection_setup_timeout_ms: int = 10_000
    connections_max_idle_ms: int = 540_000
    receive_buffer_bytes: int = -1
    send_buffer_bytes: int = 131_072
    security_protocol: str = "PLAINTEXT"
    explicit: frozenset[str] = frozenset()

    @classmethod
    def from_settings(cls, mapping: Mapping[str, Any] | None = None, **keywords: Any) -> ConsumerConfig:
        """Merge and check settings. Raises ConfigError, which says what is wrong, where, and what to write instead."""
        given: dict[str, Any] = {}
        for source in (mapping or {}, keywords):
            for raw, value in source.items():
                if not isinstance(raw, str):
                    raise ConfigError(f"a setting's name is a string such as 'bootstrap.servers'; got {raw!r}")
                name = raw.replace(".", "_").replace("-", "_").lower()
                if name in given:
                    raise ConfigError(f"{raw} was given twice; remove one of the two values")
                if name not in _CHECKS:
                    raise ConfigError(_unknown(raw, name))
                given[name] = value
        if given.get("bootstrap_servers") is None:
            raise ConfigError("bootstrap_servers is missing; give host:port of one or more brokers, such as '127.0.0.1:9092'")
        checked = {name: _CHECKS[name](name, value) for name, value in given.items()}
        if "session_timeout_ms" in checked:
            checked.setdefault("heartbeat_interval_ms", min(_HEARTBEAT_MS, checked["session_timeout_ms"] // 3))
        config = cls(**checked, explicit=frozenset(given))
        config._check_together()
        return config

    def _check_together(self) -> None:
        if self.fetch_max_wait_ms >= self.request_timeout_ms:
            raise ConfigError(
                f"fetch_max_wait_ms must be smaller than request_timeout_ms ({self.request_timeout_ms}), or every fetch of an "
                f"idle topic would time out; got {self.fetch_max_wait_ms}"
            )
        for low, high in (("retry_backoff_ms", "retry_backoff_max_ms"), ("reconnect_backoff_ms", "reconnect_backoff_max_ms")):
            # A longer first wait than the longest one is what a caller gets who raises only the first: take it as both.
            if getattr(self, low) > getattr(self, high) and high in self.explicit:
                raise ConfigError(f"{low} ({getattr(self, low)}) must not be larger than {high} ({getattr(self, high)})")
        self._check_group()

    def _check_group(self) -> None:
        if self.group_protocol == "consumer":
            # As in Java: the broker decides these, so a value given here would have no effect.
            for name in ("session_timeout_ms", "heartbeat_interval_ms", "partition_assignment_strategy"):
                if name in self.explicit:
                    raise ConfigError(
                        f"{name} has no meaning with group_protocol='consumer', leave it out: the broker decides (an assignor "
                        "is chosen with group_remote_assignor)"
                    )
            return
        if self.group_remote_assignor is not None:
            raise ConfigError(
                "group_remote_assignor is for group_protocol='consumer'; with 'classic' choose with partition_assignment_strategy"
            )
        session, interval = self.session_timeout_ms, self.heartbeat_interval_ms
        if interval >= session:
            raise ConfigError(
                f"heartbeat_interval_ms must be smaller than session_timeout_ms ({session}), best a third of it; got {interval}"
            )
        if interval > session // 3:
            log.warning(
                "heartbeat_interval_ms (%d) is more than a third of session_timeout_ms (%d): one lost may end the session",
                interval,
                session,
            )

    @property
    def reset_duration_ms(self) -> int | None:
        """How far back `auto_offset_reset="by_duration:PT1H"` goes (KIP-1106); None for the other policies."""
        _, colon, duration = self.auto_offset_reset.partition(":")
        return parse_duration(duration) if colon else None

    @property
    def max_frame_bytes(self) -> int:
        """Longest response accepted: `receive_message_max_bytes`, raised where the fetch limits need more."""
        return min(max(self.receive_message_max_bytes, self.fetch_max_bytes + self.max_partition_fetch_bytes + 512), _INT32_MAX)


def parse_bootstrap_servers(value: Any) -> tuple[tuple[str, int], ...]:
    """`"a:9092,[::1]:9093"` or a list of such strings as ((host, port), …). Raises ConfigError."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple | set | frozenset):
        raise ConfigError(f"bootstrap_servers must be a string or a list of 'host:port'; got {type(value).__name__}")
    servers: list[tuple[str, int]] = []
    for part in parts:
        if not isinstance(part, str):
            raise ConfigError(f"bootstrap_servers must hold strings such as '127.0.0.1:9092'; got {part!r}")
        text = part.strip()
        if not text:
            continue
        host, colon, port = text.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise ConfigError(f"bootstrap_servers: write the IPv6 address of {text!r} in brackets, such as '[::1]:9092'")
        if not colon or not host or not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
            raise ConfigError(
                f"bootstrap_servers: {text!r} is not host:port with a port of 1 to 65535; write it as '127.0.0.1:9092'"
            )
        servers.append((host, int(port)))
    if not servers:
        raise ConfigError("bootstrap_servers is empty; give host:port of one or more brokers, such as '127.0.0.1:9092'")
    return tuple(dict.fromkeys(servers))


_DURATION = re.compile(
    r"P(?:(?P<d>\d+)D)?(?:T(?=\d|\.)(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d{0,9})?)S)?)?", re.ASCII | re.IGNORECASE
)


def parse_duration(text: str) -> int | None:
    """An ISO 8601 duration of days, hours, minutes and seconds ("PT1H", "P2DT30M", "PT0.5S") in ms; None if it is none.

    What java.time.Duration.parse takes, but for signs: KIP-1106 refuses negative ones.
    """
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        return None
    days, hours, minutes = (int(found[unit] or 0) for unit in "dhm")
    whole, _, fraction = (found["s"] or "0").partition(".")
    return ((days * 24 + hours) * 60 + minutes) * 60_000 + int(whole) * 1000 + int(f"{fraction:0<3}"[:3])


# --- checks: (name, value) -> value, or ConfigError -------------------------------------------------------------------


def _integer(low: int, high: int = _INT32_MAX, *, also: int | None = None) -> Callable[[str, Any], int]:
    def check(name: str, value: Any) -> int:
        if isinstance(value, str):
            try:
                value = int(value.strip())
            except ValueError:
                raise ConfigError(f"{name} must be a whole number from {low} to {high}; got {value!r}") from None
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"{name} must be a whole number from {low} to {high}; got {value!r}")
        if not low <= value <= high and value != also:
            extra = "" if also is None else f", or {also}"
            raise ConfigError(f"{name} must be from {low} to {high}{extra}; got {value}")
        return value

    return check


def _boolean(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise ConfigError(f"{name} must be True or False; got {value!r}")


def _choice(*choices: str) -> Callable[[str, Any], str]:
    def check(name: str, value: Any) -> str:
        if value in choices:
            return str(value)
        raise ConfigError(f"{name} must be {_one_of(choices)}; got {value!r}{_did_you_mean(str(value), choices)}")

    return check


def _reset_policy(name: str, value: Any) -> str:
    if isinstance(value, str) and value.startswith("by_duration"):
        duration = value.removeprefix("by_duration").removeprefix(":")
        if parse_duration(duration) is None:
            raise ConfigError(f"{name}: write by_duration with an ISO 8601 duration, such as 'by_duration:PT1H'; got {value!r}")
        return f"by_duration:{duration}"
    return _choice("earliest", "latest", "none", "by_duration:PT1H")(name, value)


def _callable(name: str, value: Any) -> Callable[[Any], object] | None:
    if inspect.iscoroutinefunction(value):
        raise ConfigError(f"{name} must be a plain function: it is called, not awaited; got {value!r}")
    if value is None or callable(value):
        return value  # type: ignore[no-any-return]
    raise ConfigError(f"{name} must be a function of one argument, or None; got {value!r}")


def _security(name: str, value: Any) -> str:
    if value in ("SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise ConfigError(f"{name}={value} is not in this version of fastfetch; only PLAINTEXT is. Nothing was sent")
    return _choice("PLAINTEXT")(name, value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be a string; got {value!r}")
    try:
        size = len(value.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        raise ConfigError(f"{name}: UTF-8 has nothing for {value!r}") from None
    if size > 32_767:  # an int16 length on the wire
        raise ConfigError(f"{name} must be at most 32767 bytes long")
    return value


def _not_blank(without: str) -> Callable[[str, Any], str | None]:
    def check(name: str, value: Any) -> str | None:
        if value is None:
            return None
        if not _text(name, value).strip():
            raise ConfigError(f"{name} must not be blank; leave it out, or give None, {without}")
        return str(value)

    return check


def _strategies(name: str, value: Any) -> tuple[Any, ...]:
    entries = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
    found: dict[str, Any] = {}
    for entry in entries:
        strategy = _strategy(name, entry)
        called = strategy if isinstance(strategy, str) else strategy.name
        if called in found:
            raise ConfigError(f"{name}: {called!r} is listed twice; a group tells assignors apart by their names")
        found[called] = strategy
    if not found:
        raise ConfigError(f"{name} is empty; give one or more of {_one_of(_STRATEGIES)}, or assignors of your own")
    return tuple(found.values())


def _strategy(name: str, entry: Any) -> Any:
    """The name of one of ours, or a user's assignor as it is. That one is known by its shape: the engine is above this module."""
    if isinstance(entry, str):
        word = _JAVA_STRATEGIES.get(entry.strip(), entry.strip())
        if word not in _STRATEGIES:
            raise ConfigError(
                f"{name}: {word!r} is none of {', '.join(_STRATEGIES)}; an assignor of your own is given as an object or a class"
                f"{_did_you_mean(word, _STRATEGIES)}"
            )
        return word
    missing = [method for method in _ASSIGNOR_METHODS if not callable(getattr(entry, method, None))]
    if missing:
        raise ConfigError(
            f"{name} must hold names of strategies, or assignors: subclasses of fastfetch.assignors.Assignor; {entry!r} "
            f"has no {' and no '.join(missing)}"
        )
    called, protocols = getattr(entry, "name", None), getattr(entry, "protocols", None)
    if not isinstance(called, str) or not called.strip():
        raise ConfigError(f"{name}: {entry!r} needs a name, such as name = 'by-size', that all members of the group know it by")
    _text(name, called)
    if not isinstance(protocols, tuple | list) or not protocols or not {"eager", "cooperative"}.issuperset(protocols):
        raise ConfigError(f"{name}: protocols of {entry!r} must be a tuple of 'eager', 'cooperative' or both; got {protocols!r}")
    return entry


def _servers(name: str, value: Any) -> tuple[tuple[str, int], ...]:
    return parse_bootstrap_servers(value)


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "bootstrap_servers": _servers,
    "client_id": _text,
    "group_id": _not_blank("to work without a group"),
    "group_instance_id": _not_blank("to be a dynamic member"),
    "group_protocol": _choice("classic", "consumer"),
    "group_remote_assignor": _not_blank("for the broker's first one"),
    "partition_assignment_strategy": _strategies,
    "session_timeout_ms": _integer(3),
    "heartbeat_interval_ms": _integer(1),
    "max_poll_interval_ms": _integer(1),
    "exclude_internal_topics": _boolean,
    "auto_offset_reset": _reset_policy,
    "enable_auto_commit": _boolean,
    "auto_commit_interval_ms": _integer(0),
    "isolation_level": _choice("read_uncommitted", "read_committed"),
    "check_crcs": _boolean,
    "on_corrupt": _choice("raise", "skip"),
    "on_skipped": _callable,
    "on_stats": _callable,
    "statistics_interval_ms": _integer(1),
    "client_rack": _text,
    "fetch_min_bytes": _integer(0),
    "fetch_max_bytes": _integer(1),
    "fetch_max_wait_ms": _integer(0),
    "max_partition_fetch_bytes": _integer(1),
    "max_poll_records": _integer(1),
    "max_buffered_bytes": _integer(1, 2**63 - 1),
    "max_batch_bytes": _integer(1),
    "receive_message_max_bytes": _integer(1024),
    "decode_threads": _integer(1, 64),
    "metadata_max_age_ms": _integer(1),
    "allow_auto_create_topics": _boolean,
    "request_timeout_ms": _integer(1),
    "default_api_timeout_ms": _integer(0),
    "retry_backoff_ms": _integer(1),
    "retry_backoff_max_ms": _integer(1),
    "reconnect_backoff_ms": _integer(1),
    "reconnect_backoff_max_ms": _integer(1),
    "socket_connection_setup_timeout_ms": _integer(1),
    "connections_max_idle_ms": _integer(1, also=-1),
    "receive_buffer_bytes": _integer(1, also=-1),
    "send_buffer_bytes": _integer(1, also=-1),
    "security_protocol": _security,
}
assert {field.name for field in fields(ConsumerConfig)} == {*_CHECKS, "explicit"}

# Kafka's names that mean something to a consumer and that this version has nothing behind: saying so beats "unknown".
_LATER: dict[str, str] = {
    **dict.fromkeys(("key_deserializer", "value_deserializer"), "deserializers; records carry bytes, decode them after poll()"),
    **dict.fromkeys(
        (
            "sasl_mechanism", "sasl_jaas_config", "ssl_cafile", "ssl_ca_location", "ssl_certfile", "ssl_keyfile", "ssl_password",
            "ssl_truststore_location", "ssl_keystore_location", "ssl_check_hostname", "sasl_plain_username",
            "sasl_plain_password",
        ),
        "TLS and SASL, which are not in this version of fastfetch; only PLAINTEXT is",
    ),
}  # fmt: skip


def _unknown(raw: str, name: str) -> str:
    if name in _LATER:
        return f"{raw} belongs to {_LATER[name]}"
    guess = _did_you_mean(name, tuple(_CHECKS), dotted="." in raw)
    return f"unknown setting {raw!r}{guess or '; the known ones are ' + ', '.join(sorted(_CHECKS))}"


def _did_you_mean(word: str, choices: tuple[str, ...], *, dotted: bool = False) -> str:
    close = difflib.get_close_matches(word, choices, n=1, cutoff=0.6)
    if not close:
        return ""
    return f". Did you mean {close[0].replace('_', '.') if dotted else close[0]}?"


def _one_of(choices: tuple[str, ...]) -> str:
    return " or ".join(choices) if len(choices) < 3 else ", ".join(choices[:-1]) + " or " + choices[-1]
