"""Test doubles for programs that read Kafka: an encoder for record batches, and a broker to read them from."""

from __future__ import annotations

from .batches import Row, control_batch, encode_batch, message_set, patch, rebase, repair_crc

__all__ = ["Row", "control_batch", "encode_batch", "message_set", "patch", "rebase", "repair_crc"]
