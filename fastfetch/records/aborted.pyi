from collections.abc import Iterable

class AbortedTransactions:
    def __init__(self, aborted: Iterable[tuple[int, int]] | None) -> None: ...
