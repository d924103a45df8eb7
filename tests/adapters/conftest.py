"""The clients that the adapters are for. What importing them warns of is theirs, and no finding of ours."""

from __future__ import annotations

import contextlib
import importlib
import warnings
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    for _peer in ("kafka", "aiokafka", "confluent_kafka"):
        with contextlib.suppress(ImportError):
            __import__(_peer)


@pytest.fixture(params=["aiokafka", "fastfetch.adapters.aiokafka_api"], ids=["aiokafka", "fastfetch"])
def kind(request: pytest.FixtureRequest) -> Any:
    """AIOKafkaConsumer, theirs and ours."""
    return importlib.import_module(request.param).AIOKafkaConsumer
