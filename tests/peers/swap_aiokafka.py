"""A pytest plugin for aiokafka's own tests: the names under which they know what the adapter replaces are the adapter's.

install() rebinds what the consumer looks up; tests import the same classes by other ways.
"""

from __future__ import annotations

import aiokafka.record
import aiokafka.record.default_records
import aiokafka.record.memory_records
from aiokafka.consumer import fetcher

from fastfetch.adapters import aiokafka as adapter

adapter.install()
for module in (aiokafka.record, aiokafka.record.memory_records):
    module.MemoryRecords = adapter.MemoryRecords
aiokafka.record.default_records.DefaultRecordBatch = adapter.DefaultRecordBatch
assert fetcher.MemoryRecords is adapter.MemoryRecords
assert fetcher.PartitionRecords is adapter.PartitionRecords
