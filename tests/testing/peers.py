"""The other clients, imported where their deprecation warnings don't count as our failures."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import aiokafka
    import aiokafka.record
    import confluent_kafka
    import kafka
    import kafka.record

__all__ = ["aiokafka", "confluent_kafka", "kafka"]
