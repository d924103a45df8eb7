"""A pytest plugin for kafka-python's own tests: the names under which they know what the adapter replaces are the adapter's.

install() rebinds what the consumer looks up; tests import the same classes by other ways.
"""

from __future__ import annotations

import kafka.record
import kafka.record.memory_records
from kafka.consumer import fetcher

from fastfetch.adapters import kafka_python

kafka_python.install()
for module in (kafka.record, kafka.record.memory_records):
    module.MemoryRecords = kafka_python.MemoryRecords
assert fetcher.MemoryRecords is kafka_python.MemoryRecords
assert fetcher.Fetcher.PartitionRecords is kafka_python.PartitionRecords
