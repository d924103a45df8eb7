"""kafka-python's configuration in the words of ours.

Three kinds of keys: those that our consumer has as well (`_SAME`, `_MEANT`), those that KafkaConsumer itself looks after
(deserializers, callbacks, some timeouts), and those about the insides of another client (`_IDLE`): taken, and said to be idle.
"""

from __future__ import annotations

import logging
import re
import selectors
import socket
from collections.abc import Callable, Mapping
from typing import Any

from fastfetch.adapters.errors import as_both
from fastfetch.adapters.kafka_api.errors import KafkaConfigurationError
from fastfetch.adapters.settings import say_once, servers, strategies
from fastfetch.errors import ConfigError

__all__ = ["DEFAULT_CONFIG", "checked", "translated"]

log = logging.getLogger("fastfetch.adapters")

DEFAULT_CONFIG: dict[str, Any] = {
    "bootstrap_servers": "localhost",
    "client_id": "fastfetch",
    "client_rack": "",
    "group_id": None,
    "group_instance_id": None,
    "key_deserializer": None,
    "value_deserializer": None,
    "enable_incremental_fetch_sessions": True,
    "fetch_max_wait_ms": 500,
    "fetch_min_bytes": 1,
    "fetch_max_bytes": 52428800,
    "max_partition_fetch_bytes": 1048576,
    "request_timeout_ms": 30000,
    "retry_backoff_ms": 100,
    "reconnect_backoff_ms": 50,
    "reconnect_backoff_max_ms": 30000,
    "max_in_flight_requests_per_connection": 5,
    "auto_offset_reset": "latest",
    "enable_auto_commit": True,
    "auto_commit_interval_ms": 5000,
    "default_offset_commit_callback": lambda offsets, response: True,
    "check_crcs": True,
    "isolation_level": "read_uncommitted",
    "allow_auto_create_topics": True,
    "metadata_max_age_ms": 300000,
    "client_dns_lookup": "use_all_dns_ips",
    "partition_assignment_strategy": ("range", "roundrobin"),
    "max_poll_records": 500,
    "max_poll_interval_ms": 300000,
    "session_timeout_ms": 45000,
    "heartbeat_interval_ms": 3000,
    "receive_buffer_bytes": None,
    "send_buffer_bytes": None,
    "receive_message_max_bytes": 100_000_000,
    "socket_options": [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
    "consumer_timeout_ms": float("inf"),
    "security_protocol": "PLAINTEXT",
    "ssl_context": None,
    "ssl_check_hostname": True,
    "ssl_cafile": None,
    "ssl_certfile": None,
    "ssl_keyfile": None,
    "ssl_crlfile": None,
    "ssl_password": None,
    "ssl_ciphers": None,
    "api_version": None,
    "bootstrap_timeout_ms": 30000,
    "connections_max_idle_ms": 540000,
    "metric_reporters": [],
    "metrics_enabled": True,
    "metrics_num_samples": 2,
    "metrics_sample_window_ms": 30000,
    "metric_group_prefix": "consumer",
    "selector": selectors.DefaultSelector,
    "exclude_internal_topics": True,
    "sasl_mechanism": None,
    "sasl_plain_username": None,
    "sasl_plain_password": None,
    "sasl_kerberos_name": None,
    "sasl_kerberos_service_name": "kafka",
    "sasl_kerberos_domain_name": None,
    "sasl_oauth_token_provider": None,
    "proxy_url": None,
    "socks5_proxy": None,
    "kafka_client": None,
}

# Passed on as they are when they were given; the defaults are the same here.
_SAME = (
    "client_rack", "group_id", "group_instance_id", "fetch_max_wait_ms", "fetch_min_bytes", "fetch_max_bytes",
    "max_partition_fetch_bytes", "request_timeout_ms", "retry_backoff_ms", "reconnect_backoff_ms", "enable_auto_commit",
    "auto_commit_interval_ms", "check_crcs", "metadata_max_age_ms", "max_poll_interval_ms", "session_timeout_ms",
    "heartbeat_interval_ms", "receive_message_max_bytes", "security_protocol", "connections_max_idle_ms",
    "exclude_internal_topics",
)  # fmt: skip

# Keys with nothing behind them here, and why.
_IDLE: dict[str, str] = {
    "api_version": "every broker is asked which versions it speaks",
    "client_dns_lookup": "all addresses of a name are tried",
    "enable_incremental_fetch_sessions": "fetch sessions are always used where the broker has them",
    "kafka_client": "the engine has its own connections",
    "max_in_flight_requests_per_connection": "one fetch at a time is under way to a broker, and answers are read ahead",
    "metric_group_prefix": "metrics() has the groups of the default prefix",
    "metric_reporters": "metrics() tells what there is to tell",
    "metrics_num_samples": "rates are of the last seconds",
    "metrics_sample_window_ms": "rates are of the last seconds",
    "selector": "the engine's thread chooses its own",
    "socket_options": "TCP_NODELAY is always set; see receive_buffer_bytes and send_buffer_bytes",
    # of version 2
    "api_version_auto_timeout_ms": "bootstrap_timeout_ms says how long a broker is waited for",
    "sock_chunk_buffer_count": "a response is received into one buffer",
    "sock_chunk_bytes": "a response is received into one buffer",
}

_PRODUCERS = {
    "acks", "batch_size", "buffer_memory", "compression_type", "delivery_timeout_ms", "enable_idempotence", "key_serializer",
    "linger_ms", "max_block_ms", "max_request_size", "partitioner", "retries", "transaction_timeout_ms", "transactional_id",
    "value_serializer",
}  # fmt: skip

_POLICIES = {"earliest", "latest", "none"}
_DEPRECATED = {"smallest": "earliest", "largest": "latest"}


def _refuse(message: str) -> Exception:
    return as_both(ConfigError(message), KafkaConfigurationError)


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """kafka-python's whole configuration, as `consumer.config` has it. Raises KafkaConfigurationError, as kafka-python does."""
    producers = sorted(_PRODUCERS & given.keys())
    if producers:
        raise _refuse(f"{', '.join(producers)}: for a producer; a consumer has no use for it, leave it out")
    unknown = given.keys() - DEFAULT_CONFIG.keys() - _IDLE.keys()
    if unknown:
        raise _refuse(f"Unrecognized configs: {', '.join(sorted(unknown))}")
    config = {**DEFAULT_CONFIG, **given}
    idle, request, wait = config["connections_max_idle_ms"], config["request_timeout_ms"], config["fetch_max_wait_ms"]
    if not wait < request < idle:
        raise _refuse(
            f"connections_max_idle_ms ({idle}) must be larger than request_timeout_ms ({request}), and that larger than "
            f"fetch_max_wait_ms ({wait})"
        )
    for key in ("proxy_url", "socks5_proxy"):
        if config[key] is not None:
            raise _refuse(f"{key}: connecting through a proxy is not in this version of fastfetch. Nothing was sent")
    instance = config["group_instance_id"]
    if instance is not None:
        if config["group_id"] is None:
            raise _refuse("group_instance_id requires group_id")
        if not isinstance(instance, str) or not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", instance) or instance in (".", ".."):
            raise _refuse(
                f"group_instance_id must be 1 to 249 letters, digits, '.', '_' and '-', but not '.' or '..'; got {instance!r}"
            )
    config["auto_offset_reset"] = _reset_policy(config["auto_offset_reset"])
    frame = config["fetch_max_bytes"] + config["max_partition_fetch_bytes"]
    config["receive_message_max_bytes"] = max(config["receive_message_max_bytes"], frame)
    config["enable_auto_commit"] = config["enable_auto_commit"] and config["group_id"] is not None
    return config


def translated(config: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of fastfetch.Consumer for a checked configuration. Keys that were given in vain are said, once each."""
    for key in _IDLE.keys() & given.keys():
        say_once("KafkaConsumer", key, _IDLE[key])
    settings = {key: config[key] for key in _SAME if key in given}
    settings |= {key: say(config[key]) for key, say in _MEANT.items()}
    return settings


def _unchanged(value: Any) -> Any:
    return value


def _buffer_bytes(value: Any) -> Any:
    return -1 if value is None else value  # the system's choice


def _servers(value: Any) -> list[str]:
    # PLAINTEXT://host:port, as brokers write their listeners, is taken, and only what follows is looked at.
    parts = value.split(",") if isinstance(value, str) else value
    return servers([re.sub(r"^.*://", "", part.strip()) if isinstance(part, str) else part for part in parts])


def _reset_policy(value: Any) -> Any:
    if value in _DEPRECATED:
        log.warning("use auto_offset_reset=%s (%s is deprecated)", _DEPRECATED[value], value)
        return _DEPRECATED[value]
    if not isinstance(value, str) or (value.lower() not in _POLICIES and not value.startswith("by_duration:")):
        log.warning("auto_offset_reset=%r is no policy, taking it as 'none'", value)
        return "none"
    return value if value.startswith("by_duration:") else value.lower()


def _isolation_level(value: Any) -> Any:
    name = getattr(value, "name", value)  # kafka.IsolationLevel
    level = {0: "read_uncommitted", 1: "read_committed"}.get(name, name) if isinstance(name, int) else name
    return level.lower() if isinstance(level, str) else level


def _strategies(value: Any) -> tuple[Any, ...]:
    found = strategies(value)
    for entry in found:
        if not isinstance(entry, str) and hasattr(entry, "metadata") and not hasattr(entry, "subscription_user_data"):
            raise _refuse(
                f"partition_assignment_strategy: {entry!r} is an assignor for kafka-python's own coordinator; make it a subclass "
                "of fastfetch.assignors.Assignor, or name one of range, roundrobin, sticky, cooperative-sticky"
            )
    return found


# Passed on whether they were given or not: the defaults differ, or the value is written in another way.
_MEANT: dict[str, Callable[[Any], Any]] = {
    "bootstrap_servers": _servers,
    "client_id": _unchanged,
    "auto_offset_reset": _unchanged,
    "isolation_level": _isolation_level,
    "partition_assignment_strategy": _strategies,
    "allow_auto_create_topics": _unchanged,
    "max_poll_records": _unchanged,
    "reconnect_backoff_max_ms": _unchanged,
    "receive_buffer_bytes": _buffer_bytes,
    "send_buffer_bytes": _buffer_bytes,
}
