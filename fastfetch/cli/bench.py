"""`kfetch bench`: how fast clients read, measured on one's own broker and data.

Each subcommand is a module of this package named `bench_…`, with a click command named `command`, imported only when it is asked
for. `measured` is what they share.
"""

from __future__ import annotations

from importlib import import_module

import click

__all__ = ["command"]

_COMMANDS = ("decode", "consume", "produce-sample", "report", "compare")


class _Group(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command = import_module(f"fastfetch.cli.bench_{cmd_name.replace('-', '_')}").command
        assert isinstance(command, click.Command)
        return command


@click.group("bench", cls=_Group, short_help="Measure how fast clients read your topics, and draw it.")
def command() -> None:
    """Measure how fast clients read, on your own broker and data.

    Fill a topic (or take one of yours), let all installed clients read it in turns, and draw what came of it. Nothing is ever
    committed for a group of yours.
    """
