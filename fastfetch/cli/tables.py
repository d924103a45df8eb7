"""Tables: drawn at a terminal, plain columns into a pipe.

Into a pipe goes a line with the names, then a line a row, and every row has every column: `-` stands for what is not known or not
there. Numbers are bare there, and grouped by thousands at a terminal.

Names come from brokers, and those of groups and clients may have anything in them: what is no character to be seen is escaped.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from fastfetch.errors import printable

__all__ = ["Cell", "Table"]

Cell: TypeAlias = int | float | str | None


class Table:
    """Rows under names. A column of numbers stands at the right; the `texts` are the columns that don't."""

    def __init__(self, names: Sequence[str], texts: Sequence[str]) -> None:
        self._names = names
        self._texts = frozenset(texts)
        self._rows: list[Sequence[Cell]] = []

    def add(self, *cells: Cell) -> None:
        """A row: a whole number, a rate with one digit, a word, or None."""
        self._rows.append(cells)

    def print(self) -> None:
        if sys.stdout.isatty():
            from rich.console import Console

            Console().print(self.drawn())
        else:
            sys.stdout.write("".join(line + "\n" for line in self.lines()))
            sys.stdout.flush()

    def lines(self) -> Iterator[str]:
        """As plain text."""
        rows = [self._names, *([_plain(cell) for cell in row] for row in self._rows)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (
                cell.ljust(width) if name in self._texts else cell.rjust(width)
                for name, cell, width in zip(self._names, row, widths, strict=True)
            )
            yield "  ".join(cells).rstrip()

    def drawn(self) -> Any:
        """As rich draws it."""
        from rich import box
        from rich import table as rich
        from rich.text import Text

        table = rich.Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        for name in self._names:
            # Where there is too little room, words go on in the next line, and no digit is lost.
            is_text = name in self._texts
            table.add_column(name, justify="left" if is_text else "right", no_wrap=not is_text, overflow="fold")
        for row in self._rows:
            table.add_row(*(Text("" if cell == "" else _plain(cell, ",")) for cell in row))  # of a str [x] would be markup
        return table


def _plain(cell: Cell, group: str = "") -> str:
    if cell is None:
        return "-"
    if isinstance(cell, str):
        return printable(cell) or "-"
    return f"{cell:{group}.1f}" if isinstance(cell, float) else f"{cell:{group}}"
