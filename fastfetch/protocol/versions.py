"""Which version of an API to speak: the rules of KIP-35 and KIP-511.

1. ApiVersions, in the highest version known, is the first request on every connection; a broker may have been up- or downgraded.
2. A broker that doesn't know that version answers error 35 with a v0 body, which lists its range of ApiVersions, and keeps the
   connection. `retry_api_versions` says what to ask then.
3. Everything else is asked in the highest version that both sides know. A broker that gets a version it doesn't know closes the
   connection without an answer, so this is never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastfetch.errors import UnsupportedVersionError
from fastfetch.protocol import tables
from fastfetch.protocol.schema import Api

__all__ = ["broker_versions", "choose_version", "retry_api_versions"]


def broker_versions(body: Mapping[str, Any]) -> dict[int, tuple[int, int]]:
    """`{api_key: (min, max)}` out of an ApiVersions response.

    Ranges that hold nothing are left out; of two entries the first counts.
    """
    out: dict[int, tuple[int, int]] = {}
    for entry in body["api_keys"]:
        low, high = entry["min_version"], entry["max_version"]
        if 0 <= low <= high:
            out.setdefault(entry["api_key"], (low, high))
    return out


def choose_version(
    api: Api, broker: Mapping[int, tuple[int, int]], *, at_least: int = 0, at_most: int = 0x7FFF, node: str = "the broker"
) -> int:
    """The highest version of `api` that fastfetch, the broker and the caller's bounds have in common.

    `broker` is what `broker_versions` returned for this connection. `at_most` is for requests that a higher version can't
    express, such as a Fetch by name (12). Raises UnsupportedVersionError naming the API and both ranges.
    """
    low, high = max(api.min_version, at_least), min(api.max_version, at_most)
    theirs = broker.get(api.key)
    if theirs is not None and low <= high:
        version = min(high, theirs[1])
        if version >= max(low, theirs[0]):
            return version
    offered = "doesn't offer it" if theirs is None else f"speaks versions {theirs[0]} to {theirs[1]}"
    bounds = "" if (low, high) == (api.min_version, api.max_version) else f", and needs {low} to {high} here"
    raise UnsupportedVersionError(
        f"no common version of {api.name} (api key {api.key}): fastfetch speaks {api.min_version} to {api.max_version}{bounds}, "
        f"{node} {offered}"
    )


def retry_api_versions(asked: int, body: Mapping[str, Any]) -> int:
    """The version of ApiVersions to ask for after `asked` was answered with error 35.

    The highest one in common with the range the broker gave, or 0 if it gave none. Strictly below `asked`, so that a peer can't
    make the client ask for ever. Raises UnsupportedVersionError if nothing is left.
    """
    api = tables.API_VERSIONS
    theirs = broker_versions(body).get(api.key)
    version = 0 if theirs is None else min(api.max_version, theirs[1], asked - 1)
    if asked > 0 and (theirs is None or version >= theirs[0]):
        return version
    offered = "gives no range of its own" if theirs is None else f"speaks {theirs[0]} to {theirs[1]}"
    raise UnsupportedVersionError(
        f"no common version of ApiVersions (api key 18): fastfetch speaks 0 to {api.max_version}, the broker refused {asked} and "
        f"{offered}"
    )
