"""Where a run of batches ends, from its headers alone."""

from typing_extensions import Buffer

def promised_next_offset(records: Buffer, start: int) -> int:
    """The next offset to fetch after `records`, as the batch headers promise it, or -1 if they promise nothing."""
