"""Where a run of batches ends, from its headers alone."""

from typing_extensions import Buffer

def promised_end(records: Buffer, start: int) -> tuple[int, int]:
    """(next offset, leader epoch) after `records`, as the batch headers promise it; -1 for what they don't."""
