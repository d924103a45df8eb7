"""Kinds of data that topics are filled with for measuring: endless keys and values from a seeded random source, the same on every
machine. None of it is anybody's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import TypeAlias

__all__ = ["FIRST_TIMESTAMP_MS", "SHAPES", "Pairs", "json_events", "letters", "metric_lines"]

Pairs: TypeAlias = Iterator[tuple[bytes | None, bytes]]

FIRST_TIMESTAMP_MS = 1_700_000_000_000

_PROSE = (
    "the a of and to in is was for on with as by at from it that this be are or an has had which were one all not but have "
    "their river mountain harbour window garden winter summer letter market bridge station village captain doctor teacher "
    "engine silver copper yellow narrow quiet sudden ancient modern western northern carried opened followed remembered "
    "discovered crossed built measured returned between under across before after during without against people morning "
    "evening paper water stone weather"
)
_WORDS = _PROSE.split()
_PATHS = ("shoes", "books", "garden", "music", "toys")
_AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15",
    "curl/8.5.0",
)


def json_events(rng: Random, value_bytes: int | None = None) -> Pairs:
    """Events of a web shop in about 200 bytes, with a key of 8; for another size fields are left out, or a text is added."""
    countries = ["DE", "FR", "US", "US", "US", "GB", "JP", "BR", "IN", "IN"]
    events = ["page_view", "page_view", "page_view", "page_view", "add_to_cart", "search", "checkout", "login"]
    moment = FIRST_TIMESTAMP_MS
    while True:
        moment += rng.randrange(4)
        user = int(rng.paretovariate(0.6)) % 1_000_000
        event = {
            "id": f"{rng.getrandbits(48):012x}",
            "ts": moment,
            "user": user,
            "event": rng.choice(events),
            "path": f"/shop/{rng.choice(_PATHS)}/{int(rng.paretovariate(0.8)) % 100_000}",
            "country": rng.choice(countries),
            "device": rng.choice(("ios", "android", "web")),
            "amount": round(rng.expovariate(0.02), 2),
            "session": f"{rng.getrandbits(32):08x}",
            "currency": rng.choice(("EUR", "USD", "USD", "GBP")),
            "version": rng.choice(("2.14.3", "2.14.2")),
            "ok": rng.random() < 0.98,
        }
        if value_bytes is not None:
            while len(_compact(event)) > value_bytes and len(event) > 1:
                event.popitem()
            room = value_bytes - len(_compact(event)) - len(',"text":""')
            if room > 0:
                event["text"] = _sentence(rng, room)
        yield b"u%07d" % user, _compact(event)


def _compact(event: dict[str, object]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode()


def metric_lines(rng: Random, value_bytes: int | None = None) -> Pairs:
    """Lines of a metrics agent, of 100 bytes; no keys."""
    hosts = [f"web-{n:03d}.eu-west-1" for n in range(40)]
    names = ["cpu.user", "cpu.system", "mem.used", "disk.read", "disk.write", "net.in", "net.out"]
    moment, size = FIRST_TIMESTAMP_MS, 100 if value_bytes is None else value_bytes
    while True:
        moment += 1
        for name in names:
            line = f"agent=7 host={rng.choice(hosts)} metric={name} env=production value={rng.randrange(1000)} ts={moment}"
            yield None, line.encode().ljust(size)[:size]


def letters(rng: Random, value_bytes: int | None = None) -> Pairs:
    """1 KB of random letters: what a compressor makes a third smaller at best; no keys."""
    alphabet = bytes(65 + n % 26 for n in range(256))
    while True:
        yield None, rng.randbytes(1024 if value_bytes is None else value_bytes).translate(alphabet)


def random_bytes(rng: Random, value_bytes: int | None = None) -> Pairs:
    """256 random bytes, which no codec makes smaller; no keys."""
    while True:
        yield None, rng.randbytes(256 if value_bytes is None else value_bytes)


def text(rng: Random, value_bytes: int | None = None) -> Pairs:
    """500 bytes of words; no keys."""
    while True:
        yield None, _sentence(rng, 500 if value_bytes is None else value_bytes).encode()


def log_lines(rng: Random, value_bytes: int | None = None) -> Pairs:
    """Lines of a web server's log, of about 130 bytes, with the address as key."""
    moment = FIRST_TIMESTAMP_MS
    while True:
        moment += rng.randrange(40)
        address = f"10.{rng.randrange(4)}.{rng.randrange(256)}.{rng.randrange(256)}"
        line = (
            f'{address} - - [{moment}] "GET /shop/{rng.choice(_PATHS)}/{int(rng.paretovariate(0.8)) % 100_000} HTTP/1.1" '
            f'{rng.choice((200, 200, 200, 200, 304, 404, 500))} {rng.randrange(200, 60_000)} "-" "{rng.choice(_AGENTS)}" '
            f"{rng.randrange(1, 900)}ms"
        ).encode()
        if value_bytes is not None:
            line = (line + b" " + _sentence(rng, max(0, value_bytes - len(line))).encode())[:value_bytes]
        yield address.encode(), line


def _sentence(rng: Random, size: int) -> str:
    words = " ".join(rng.choices(_WORDS, k=size // 5 + 1))  # a word and its space are six letters on average
    while len(words) < size:
        words += " " + rng.choice(_WORDS)
    return words[:size]


# By name: (random source, bytes of a value or None for what is usual) to pairs of key and value.
SHAPES: dict[str, Callable[[Random, int | None], Pairs]] = {
    "json": json_events,
    "logs": log_lines,
    "text": text,
    "metrics": metric_lines,
    "letters": letters,
    "random": random_bytes,
}
