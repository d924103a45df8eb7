"""librdkafka's configuration in the words of fastfetch.

Names, types and choices are theirs, and what they refuse is refused with the same code. Each key is one of

    honoured        here or by the engine
    without effect  it tunes what fastfetch does not have; said once in a process
    refused         it belongs to a producer, or to TLS and SASL

`fastfetch.` in front of a setting of ConsumerConfig's gives it to the engine as it is: "fastfetch.decode.threads".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastfetch.adapters.confluent_api.types import KafkaError, failure, raised
from fastfetch.adapters.settings import say_once, servers
from fastfetch.config import ConsumerConfig
from fastfetch.errors import ConfigError

__all__ = ["Settings"]

CLIENT = "confluent_api"
INVALID: int = KafkaError._INVALID_ARG  # type: ignore[attr-defined]
NOT_IMPLEMENTED: int = KafkaError._NOT_IMPLEMENTED  # type: ignore[attr-defined]

# What theirs is if it was not given, where ours is another.
DEFAULTS: dict[str, Any] = {
    "isolation_level": "read_committed",
    "request_timeout_ms": 60_000,
    "reconnect_backoff_ms": 100,
    "reconnect_backoff_max_ms": 10_000,
    "socket_connection_setup_timeout_ms": 30_000,
}
# Members of a group must have an assignor in common, those that still run on librdkafka included.
CLASSIC_STRATEGY = "range,roundrobin"

_RESETS = {
    **dict.fromkeys(("smallest", "earliest", "beginning"), "earliest"),
    **dict.fromkeys(("largest", "latest", "end"), "latest"),
    "error": "none",
}


def _as_is(key: str, value: Any) -> Any:
    return value


def _text(key: str, value: Any) -> str:
    return str(value)


def _number(key: str, value: Any) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise failure(INVALID, f'Configuration property "{key}" must be a whole number, not {value!r}') from None


def _number_or_default(key: str, value: Any) -> int:
    """0 is the system's own choice, or never, which is -1 in ours."""
    return _number(key, value) or -1


def _kbytes(key: str, value: Any) -> int:
    return _number(key, value) * 1024


def _refresh(key: str, value: Any) -> int:
    """-1 turns it off."""
    number = _number(key, value)
    return 2**31 - 1 if number < 0 else number


def _flag(key: str, value: Any) -> bool:
    word = str(value).lower()
    if word in ("true", "t", "1"):
        return True
    if word in ("false", "f", "0"):
        return False
    raise failure(INVALID, f'Configuration property "{key}" must be true or false, not {value!r}')


def _reset(key: str, value: Any) -> str:
    if str(value) not in _RESETS:
        raise failure(INVALID, f'Configuration property "{key}" must be one of {", ".join(_RESETS)}; not {value!r}')
    return _RESETS[str(value)]


# Given to the engine: by which name, read how. The order counts where two keys mean the same: the last one given wins.
_ENGINE: dict[str, tuple[str, Callable[[str, Any], Any]]] = {
    "bootstrap.servers": ("bootstrap_servers", _text),
    "metadata.broker.list": ("bootstrap_servers", _text),
    "client.id": ("client_id", _text),
    "client.rack": ("client_rack", _text),
    "group.id": ("group_id", _text),
    "group.instance.id": ("group_instance_id", _text),
    "group.protocol": ("group_protocol", _text),
    "group.remote.assignor": ("group_remote_assignor", _text),
    "partition.assignment.strategy": ("partition_assignment_strategy", _text),
    "session.timeout.ms": ("session_timeout_ms", _number),
    "heartbeat.interval.ms": ("heartbeat_interval_ms", _number),
    "max.poll.interval.ms": ("max_poll_interval_ms", _number),
    "auto.offset.reset": ("auto_offset_reset", _reset),
    "enable.auto.commit": ("enable_auto_commit", _flag),
    "auto.commit.enable": ("enable_auto_commit", _flag),
    "auto.commit.interval.ms": ("auto_commit_interval_ms", _number),
    "isolation.level": ("isolation_level", _text),
    "check.crcs": ("check_crcs", _flag),
    "fetch.min.bytes": ("fetch_min_bytes", _number),
    "fetch.max.bytes": ("fetch_max_bytes", _number),
    "fetch.wait.max.ms": ("fetch_max_wait_ms", _number),
    "fetch.message.max.bytes": ("max_partition_fetch_bytes", _number),
    "max.partition.fetch.bytes": ("max_partition_fetch_bytes", _number),
    "queued.max.messages.kbytes": ("max_buffered_bytes", _kbytes),
    "receive.message.max.bytes": ("receive_message_max_bytes", _number),
    "topic.metadata.refresh.interval.ms": ("metadata_max_age_ms", _refresh),
    "allow.auto.create.topics": ("allow_auto_create_topics", _flag),
    "socket.timeout.ms": ("request_timeout_ms", _number),
    "socket.connection.setup.timeout.ms": ("socket_connection_setup_timeout_ms", _number),
    "socket.receive.buffer.bytes": ("receive_buffer_bytes", _number_or_default),
    "socket.send.buffer.bytes": ("send_buffer_bytes", _number_or_default),
    "connections.max.idle.ms": ("connections_max_idle_ms", _number_or_default),
    "reconnect.backoff.ms": ("reconnect_backoff_ms", _number),
    "reconnect.backoff.max.ms": ("reconnect_backoff_max_ms", _number),
    "retry.backoff.ms": ("retry_backoff_ms", _number),
    "retry.backoff.max.ms": ("retry_backoff_max_ms", _number),
    "statistics.interval.ms": ("statistics_interval_ms", _number),
    "security.protocol": ("security_protocol", lambda key, value: str(value).upper()),
}

# Honoured by the adapter: which field of Settings, read how.
_ADAPTER: dict[str, tuple[str, Callable[[str, Any], Any]]] = {
    "enable.auto.offset.store": ("stores_offsets", _flag),
    "enable.partition.eof": ("tells_ends", _flag),
    "error_cb": ("error_cb", _as_is),
    "stats_cb": ("stats_cb", _as_is),
    "on_commit": ("on_commit", _as_is),
    "logger": ("logger", _as_is),
}
_CALLBACKS = ("error_cb", "stats_cb", "throttle_cb", "on_commit", "log_cb")

_TUNES_LIBRDKAFKA = "it tunes librdkafka"
_WITHOUT_EFFECT: dict[str, str] = {
    **dict.fromkeys(
        (
            "message.max.bytes", "message.copy.max.bytes", "max.in.flight.requests.per.connection", "max.in.flight",
            "metadata.recovery.strategy", "metadata.recovery.rebootstrap.trigger.ms", "metadata.max.age.ms",
            "topic.metadata.refresh.fast.interval.ms", "topic.metadata.refresh.fast.cnt", "topic.metadata.refresh.sparse",
            "topic.metadata.propagation.max.ms", "socket.blocking.max.ms", "socket.keepalive.enable", "socket.nagle.disable",
            "socket.max.fails", "broker.address.ttl", "broker.address.family", "reconnect.backoff.jitter.ms", "enabled_events",
            "log.queue", "log.thread.name", "enable.random.seed", "log.connection.close", "internal.termination.signal",
            "api.version.request", "api.version.request.timeout.ms", "api.version.fallback.ms", "broker.version.fallback",
            "group.protocol.type", "coordinator.query.interval.ms", "queued.min.messages", "fetch.queue.backoff.ms",
            "fetch.error.backoff.ms", "offset.store.method", "offset.store.path", "offset.store.sync.interval.ms",
            "consume.callback.max.messages", "client.dns.lookup", "enable.metrics.push", "plugin.library.paths",
            "max.poll.records", "share.acknowledgement.mode", "builtin.features",
        ),
        _TUNES_LIBRDKAFKA,
    ),
    **dict.fromkeys(("debug", "log_level", "log_cb"), "use logging.getLogger('fastfetch')"),
    "topic.blacklist": "leave the topics out of the pattern that is subscribed to",
    "throttle_cb": "how long brokers throttle is in the statistics",
}  # fmt: skip

_PRODUCERS = frozenset({
    "transactional.id", "transaction.timeout.ms", "enable.idempotence", "enable.gapless.guarantee",
    "queue.buffering.max.messages", "queue.buffering.max.kbytes", "queue.buffering.max.ms", "linger.ms",
    "message.send.max.retries", "retries", "queue.buffering.backpressure.threshold", "compression.codec", "compression.type",
    "compression.level", "batch.num.messages", "batch.size", "delivery.report.only.error", "dr_cb", "dr_msg_cb", "on_delivery",
    "sticky.partitioning.linger.ms", "request.required.acks", "acks", "request.timeout.ms", "message.timeout.ms",
    "delivery.timeout.ms", "queuing.strategy", "produce.offset.report", "partitioner", "partitioner_cb", "msg_order_cmp",
})  # fmt: skip

_SECURITY = ("ssl.", "ssl_", "sasl.", "https.", "enable.ssl.", "enable.sasl.", "oauth", "oauthbearer_")


@dataclass
class Settings:
    """What a configuration asks for: `engine` is for ConsumerConfig, the rest for the adapter."""

    engine: dict[str, Any] = field(default_factory=dict)
    stores_offsets: bool = True
    tells_ends: bool = False
    error_cb: Callable[[KafkaError], object] | None = None
    stats_cb: Callable[[str], object] | None = None
    on_commit: Callable[[KafkaError | None, list[Any]], object] | None = None
    logger: Any = None

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Settings:
        """Raises KafkaException with _INVALID_ARG (unknown, out of range, a producer's) or _NOT_IMPLEMENTED (TLS and SASL),
        ValueError without a group.id, TypeError for a callback that is none."""
        settings = cls()
        flat = dict(given)
        flat = {**flat.pop("default.topic.config", {}), **flat}
        if not flat.get("group.id"):
            raise ValueError("Failed to create consumer: group.id must be set")
        for key, value in flat.items():
            settings._take(key, value)
        engine = DEFAULTS | settings.engine
        if engine.get("group_protocol", "classic") == "classic":
            engine.setdefault("partition_assignment_strategy", CLASSIC_STRATEGY)
        if settings.stats_cb is None or not engine.get("statistics_interval_ms"):
            engine.pop("statistics_interval_ms", None)
            settings.stats_cb = None
        settings.engine = engine
        try:
            config = ConsumerConfig.from_settings(engine)
        except ConfigError as error:
            raise raised(error) from None
        if config.max_poll_interval_ms < config.session_timeout_ms and config.group_protocol == "classic":
            raise failure(INVALID, "max.poll.interval.ms must not be smaller than session.timeout.ms")
        return settings

    def _take(self, key: Any, value: Any) -> None:
        if not isinstance(key, str):
            raise TypeError(f"a configuration property's name is a string, not {key!r}")
        if key in _CALLBACKS and not callable(value):
            raise TypeError(f"expected {key} property as a callable function")
        if key in _ENGINE:
            if value is not None:  # which is theirs' word for the default
                name, read = _ENGINE[key]
                self.engine[name] = servers(read(key, value)) if name == "bootstrap_servers" else read(key, value)
        elif key in _ADAPTER:
            name, read = _ADAPTER[key]
            setattr(self, name, read(key, value))
        elif key in _WITHOUT_EFFECT:
            say_once(CLIENT, key, _WITHOUT_EFFECT[key])
        elif key in _PRODUCERS:
            raise failure(INVALID, f'Configuration property "{key}" is for producers; leave it out')
        elif key.startswith("fastfetch."):
            self.engine[key.removeprefix("fastfetch.").replace(".", "_")] = value
        elif key.startswith(_SECURITY):
            raise failure(
                NOT_IMPLEMENTED,
                f'Configuration property "{key}": TLS and SASL are not in this version of fastfetch, only plaintext is',
            )
        else:
            raise failure(INVALID, f'No such configuration property: "{key}"')
