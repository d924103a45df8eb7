"""The clients that the adapters are for. What importing them warns of is theirs, and no finding of ours."""

from __future__ import annotations

import contextlib
import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    for _peer in ("kafka", "aiokafka", "confluent_kafka"):
        with contextlib.suppress(ImportError):
            __import__(_peer)
