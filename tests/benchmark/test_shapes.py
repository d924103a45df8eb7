"""Made-up data: the same for the same seed, of the size that was asked for."""

from __future__ import annotations

import itertools
import json
import zlib
from random import Random

import pytest

from fastfetch.benchmark.shapes import SHAPES


def values(name: str, size: int | None, seed: int = 1) -> list[bytes]:
    return [value for _, value in itertools.islice(SHAPES[name](Random(seed), size), 100)]


@pytest.mark.parametrize("name", SHAPES)
def test_a_seed_says_it_all(name: str) -> None:
    assert values(name, 100) == values(name, 100)
    assert values(name, 100) != values(name, 100, seed=2)
    assert len(set(values(name, 100))) > 90


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("size", [0, 1, 50, 5000])
def test_values_have_the_size(name: str, size: int) -> None:
    sizes = {len(value) for value in values(name, size)}
    if name != "json":
        assert sizes == {size}
    elif size >= 50:
        assert size - 12 <= min(sizes) <= max(sizes) <= size  # less than what the next field would take
    else:
        assert max(sizes) == len('{"id":"0123456789ab"}'), "one field is left"


@pytest.mark.parametrize("size", [None, 30, 400])
def test_json_is_json(size: int | None) -> None:
    assert all("id" in json.loads(value) for value in values("json", size))


def test_some_can_be_compressed_and_some_cannot() -> None:
    gain = {name: len(b"".join(found)) / len(zlib.compress(b"".join(found))) for name in SHAPES for found in [values(name, None)]}
    assert gain["random"] < 1.01
    assert 1.3 < gain["letters"] < 2
    assert all(gain[name] > 3 for name in ("json", "logs", "text", "metrics"))
