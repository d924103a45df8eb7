"""`kfetch`, the command line (`fastfetch` is the name of a system-information tool), also as `python -m fastfetch`.

Records go to stdout, everything else to stderr. An error is one sentence there, never a traceback. Exit codes: 0 fine, also when
the reader of a pipe has gone; 1 failed at run time; 2 called wrongly, also an unknown setting; 3 corruption found; 130 Ctrl-C.

Each command is a module of this package with a click command named `command`, imported only when it is asked for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

import fastfetch
from fastfetch.errors import ConfigError, CorruptBatchError, FastFetchError, printable

__all__ = ["EXIT_CORRUPT", "EXIT_FAILED", "EXIT_INTERRUPTED", "EXIT_USAGE", "main"]

EXIT_FAILED, EXIT_USAGE, EXIT_CORRUPT, EXIT_INTERRUPTED = 1, 2, 3, 130

_COMMANDS = ("demo", "cat", "dump", "offsets", "lag", "groups", "serve", "bench", "doctor")


class _Program(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command = import_module(f"fastfetch.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        try:
            code = super().main(args, prog_name or "kfetch", complete_var, False, **extra)
        except click.ClickException as error:
            code = error.exit_code
            sentence = error.format_message()
            if isinstance(error, click.UsageError):
                path = error.ctx.command_path if error.ctx is not None else "kfetch"
                sentence = f"{sentence.rstrip('.')}. See {path} --help"
            complain(sentence)
        except (click.Abort, KeyboardInterrupt):
            code = EXIT_INTERRUPTED
        code = code if isinstance(code, int) else 0
        if standalone_mode:
            sys.exit(code)
        return code

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
        except BrokenPipeError:
            # `| head` has what it wanted. Nothing may be flushed into that pipe when the interpreter ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return 0
        except CorruptBatchError as error:
            complain(str(error))
            return EXIT_CORRUPT
        except ConfigError as error:
            complain(str(error))
            return EXIT_USAGE
        except FastFetchError as error:
            complain(str(error))
        except OSError as error:
            complain(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
        return EXIT_FAILED


def complain(sentence: str) -> None:
    """One line on stderr, whatever the message has in it."""
    click.echo("kfetch: " + printable(" ".join(sentence.split())), err=True)


@click.group(cls=_Program, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(fastfetch.__version__, prog_name="kfetch")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Read Kafka records from brokers and from log segments on disk."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(EXIT_USAGE)
