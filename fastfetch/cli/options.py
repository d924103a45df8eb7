"""Options and arguments that several commands have, and the consumer they describe."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from fastfetch.cli.inspector import Inspector

__all__ = [
    "as_settings", "brokers_option", "connect", "isolation_option", "json_option", "parse_partitions", "settings_option",
]  # fmt: skip

# Who looks something up at a terminal learns after ten seconds, not a minute, that there is no broker.
_TIMEOUT_MS = 10_000

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def as_settings(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """`-X key=value` as a mapping."""
    settings = {}
    for value in values:
        key, equals, text = value.partition("=")
        key = key.strip().replace("_", ".")
        if not equals or not key:
            example = "fetch.max.wait.ms=100"
            raise click.BadParameter(f"{value!r} is no setting: write it as key=value, such as {example}", ctx, param)
        settings[key] = text
    return settings


def parse_partitions(text: str) -> frozenset[int]:
    """`0,3,5-8` as numbers. Raises ValueError with a sentence."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        if not (first.isdigit() and last.isdigit() and int(first) <= int(last) < int(first) + 100_000):
            raise ValueError(f"{text!r} is no list of partitions: write them as 0,3,5-8")
        found.update(range(int(first), int(last) + 1))
    return frozenset(found)


def brokers_option(text: str) -> Decorator:
    return click.option("-b", "--brokers", envvar="FASTFETCH_BOOTSTRAP_SERVERS", metavar="HOST:PORT,…", help=text)


def settings_option() -> Decorator:
    return click.option("-X", "settings", metavar="KEY=VALUE", callback=as_settings, multiple=True, help="A consumer's setting.")


def isolation_option(text: str | None = None) -> Decorator:
    levels = click.Choice(["read_uncommitted", "read_committed"])
    return click.option("--isolation", type=levels, default="read_uncommitted", show_default=True, help=text)


def json_option() -> Decorator:
    return click.option("--json", "as_json", is_flag=True, help="JSON lines.")


def connect(brokers: str | None, settings: dict[str, str], **more: str | None) -> Inspector:
    """A consumer that is only asked, and reads nothing. `more` are settings by Kafka's names with underscores; what
    -X says goes before them. Raises UsageError where no brokers are named."""
    from fastfetch.cli.inspector import Inspector

    config: dict[str, Any] = {"bootstrap.servers": brokers, "enable.auto.commit": False, "default.api.timeout.ms": _TIMEOUT_MS}
    config |= {name.replace("_", "."): value for name, value in more.items() if value is not None}
    config |= settings
    if not config["bootstrap.servers"]:
        raise click.UsageError("no brokers: say where, such as -b 127.0.0.1:9092")
    return Inspector(config)
