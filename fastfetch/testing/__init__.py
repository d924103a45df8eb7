"""Test doubles for programs that read Kafka: an encoder for record batches, and a broker to read them from.

`Broker` and what a script does to its answers; `encode_batch` and its kin for the bytes. Nothing here knows the package's client.
"""

from __future__ import annotations

from .batches import Row, control_batch, encode_batch, message_set, patch, rebase, repair_crc
from .broker import KAFKA_VERSIONS, Broker
from .corpus import DemoPartition, demo_corpus
from .faults import (
    Action,
    Exchange,
    Gate,
    answer,
    close,
    cut,
    delay,
    drop,
    duplicate,
    edit,
    error,
    flip,
    hold,
    replace,
    reset,
    slices,
    swap,
    throttle,
    top_error,
)
from .group_view import GroupView, MemberView
from .server import Logged, Rule

__all__ = [
    "KAFKA_VERSIONS",
    "Action",
    "Broker",
    "DemoPartition",
    "Exchange",
    "Gate",
    "GroupView",
    "Logged",
    "MemberView",
    "Row",
    "Rule",
    "answer",
    "close",
    "control_batch",
    "cut",
    "delay",
    "demo_corpus",
    "drop",
    "duplicate",
    "edit",
    "encode_batch",
    "error",
    "flip",
    "hold",
    "message_set",
    "patch",
    "rebase",
    "repair_crc",
    "replace",
    "reset",
    "slices",
    "swap",
    "throttle",
    "top_error",
]
