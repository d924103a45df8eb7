"""`kfetch offsets --reset`: other committed offsets for a group that nobody is in.

Everything is looked at before anything is written, and it is written in one commit. That nobody is in the group is checked first,
and once more by the coordinator: it takes a commit without membership for an empty group only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import click

from fastfetch.cli.inspector import Inspector
from fastfetch.cli.partitions import Standing, standings
from fastfetch.cli.ranges import parse_time
from fastfetch.cli.tables import Table
from fastfetch.config import parse_duration
from fastfetch.engine.groups import GroupDescription
from fastfetch.errors import CommitFailedError, FastFetchError
from fastfetch.types import OffsetAndMetadata, TopicPartition

__all__ = ["Target", "reset", "target_chosen", "target_options"]

MAX_OFFSET = (1 << 63) - 1
_MEMBERS_NAMED = 5
_CHOSEN = "fastfetch.reset.targets"


@dataclass(frozen=True, slots=True)
class Target:
    """Where to. `value` is the offset, how far to shift, or ms since 1970; `option` is how it was said."""

    kind: str
    option: str
    value: int = 0


@dataclass(slots=True)
class Change:
    """`new` is None where there is nothing to write to: the partition is gone."""

    old: OffsetAndMetadata | None
    new: OffsetAndMetadata | None
    note: str

    @property
    def difference(self) -> int | None:
        return None if self.old is None or self.new is None else self.new.offset - self.old.offset


# ------------------------------------------------------------------------------------------------------------------- options


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of `kafka-consumer-groups --reset-offsets`; `target_chosen` says which one was given."""
    options = [
        _option("--to-earliest", "earliest", help="To the first offset there is.", is_flag=True),
        _option("--to-latest", "latest", help="To the end.", is_flag=True),
        _option("--to-offset", "offset", help="To this offset.", metavar="N", type=_Whole(0)),
        _option("--to-datetime", "time", help="To the first record at or after that time.", metavar="TIME", type=_Time()),
        _option("--by-duration", "time", help="The same, so long ago: 1h30m or PT1H30M.", metavar="AGE", type=_Age()),
        _option("--shift-by", "shift", help="So many offsets on, or back if negative.", metavar="N", type=_Whole(-MAX_OFFSET)),
        _option("--to-current", "current", help="To what is committed, within what is still there.", is_flag=True),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _option(name: str, kind: str, **more: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def note(ctx: click.Context, param: click.Parameter, value: int | bool | None) -> None:
        if value is not None and value is not False:
            ctx.meta.setdefault(_CHOSEN, []).append(Target(kind, name, int(value)))

    more["help"] = "--reset: " + more["help"][0].lower() + more["help"][1:]
    return click.option(name, callback=note, expose_value=False, **more)


class _Time(click.ParamType[int]):
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return max(0, parse_time(value))  # there is no record before 1970
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _Age(click.ParamType[int]):
    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        age = parse_duration(value)
        try:
            return max(0, parse_time(f"-{value}") if age is None else parse_time("now") - age)
        except ValueError:
            self.fail(f"{value!r} is no duration: write it as 1h30m, 2d or PT1H30M", param, ctx)


class _Whole(click.ParamType[int]):
    name = "integer"

    def __init__(self, low: int) -> None:
        self._low = low

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is no whole number", param, ctx)
        if not self._low <= number <= MAX_OFFSET:
            self.fail(f"{value} is no offset: they go from 0 to {MAX_OFFSET}", param, ctx)
        return number


def target_chosen(ctx: click.Context, *, is_reset: bool, is_execute: bool) -> Target | None:
    """The one target of a reset; None if there is to be none. Raises UsageError for what does not go together."""
    chosen: list[Target] = ctx.meta.get(_CHOSEN, [])
    if not is_reset:
        if chosen or is_execute:
            option = chosen[0].option if chosen else "--execute"
            raise click.UsageError(f"{option} says how committed offsets are to be changed, and --reset is missing")
        return None
    if len(chosen) != 1:
        said = f", not {' and '.join(target.option for target in chosen)} at once" if chosen else ""
        options = "--to-earliest, --to-latest, --to-offset, --to-datetime, --by-duration, --shift-by, --to-current"
        raise click.UsageError(f"where to? Say one of {options}{said}")
    return chosen[0]


# -------------------------------------------------------------------------------------------------------------------- resets


def reset(
    inspector: Inspector, partitions: list[TopicPartition] | None, target: Target, *, is_execute: bool, as_json: bool
) -> None:
    """Show what the group's committed offsets become, and write that if told to. None: of all partitions committed for."""
    group = inspector.config.group_id
    found = _check_empty(inspector)
    changes = _plan(inspector, partitions, target, is_new=found is None)
    writable = {tp: change.new for tp, change in changes.items() if change.new is not None}
    if is_execute and writable:
        try:
            inspector.commit(writable)
        except CommitFailedError:
            _check_empty(inspector)  # somebody came in between: says who
            raise
    _show(changes, is_written=is_execute, as_json=as_json)
    what = f"{len(writable)} offset{'' if len(writable) == 1 else 's'} of group {group!r}"
    said = f"wrote {what}" if is_execute else f"a dry run, nothing was written; --execute writes {what}"
    if found is None:
        said += "; there was no group of this name" if is_execute else ", which does not exist yet"
    click.echo(f"kfetch: {said}", err=True)


def _check_empty(inspector: Inspector) -> GroupDescription | None:
    """The group; None if there is none. Raises with the names of who is in it."""
    group = inspector.config.group_id or ""
    found = inspector.describe_group(group)
    if found is None or (found.state == "Empty" and not found.members):
        return found
    members = [f"{m.client_id} at {m.host.removeprefix('/')} ({m.member_id})" for m in found.members[:_MEMBERS_NAMED]]
    if len(found.members) > _MEMBERS_NAMED:
        members.append(f"{len(found.members) - _MEMBERS_NAMED} more")
    who = f"in it: {', '.join(members)}" if members else "nobody is in it at the moment"
    raise FastFetchError(
        f"group {group!r} is {found.state}, and only the offsets of an empty group can be reset: nothing was written. Stop its "
        f"members first; {who}"
    )


def _plan(
    inspector: Inspector, partitions: list[TopicPartition] | None, target: Target, *, is_new: bool
) -> dict[TopicPartition, Change]:
    committed = inspector.committed(partitions)
    if partitions is None and not committed:
        why = "does not exist" if is_new else "has committed nothing"
        raise FastFetchError(f"group {inspector.config.group_id!r} {why}: look at the name, or name the topics to commit for")
    found = standings(inspector, committed, {tp.topic for tp in committed})
    found = {tp: found[tp] for tp in sorted(committed)}
    if target.kind == "shift":
        fixed = [tp for tp in found if committed[tp] is None]
        if fixed:
            raise FastFetchError(f"nothing is committed for {_names(fixed)}, so nothing can be shifted; nothing was written")
    there = [tp for tp, standing in found.items() if standing.end is not None]
    times: dict[TopicPartition, int] = {}
    if target.kind == "time":
        answers = inspector.offsets_for_times(dict.fromkeys(there, target.value))
        times = {tp: at.offset for tp, at in answers.items() if at is not None}
    return {tp: _change(committed[tp], standing, target, times.get(tp)) for tp, standing in found.items()}


def _change(old: OffsetAndMetadata | None, standing: Standing, target: Target, at_time: int | None) -> Change:
    """Where one partition goes: never outside of its log, which its reader would meet with auto_offset_reset."""
    if standing.start is None or standing.end is None:
        return Change(old, None, "no such partition any more, left as it is")
    start, end, note = standing.start, standing.end, ""
    match target.kind:
        case "earliest":
            wanted = start
        case "latest":
            wanted = end
        case "offset":
            wanted = target.value
        case "shift":
            wanted = (0 if old is None else old.offset) + target.value
        case "time" if at_time is not None:
            wanted = at_time
        case "time":
            wanted, note = end, "no record so late: the end"
        case _ if old is not None:
            wanted = old.offset
        case _:
            wanted, note = end, "nothing was committed: the end"
    new = min(max(wanted, start), end)
    if new != wanted:
        note = f"{wanted} is before the start" if wanted < start else f"{wanted} is beyond the end"
    # What stays keeps its metadata and leader epoch.
    return Change(old, old if old is not None and old.offset == new else OffsetAndMetadata(new), note)


def _show(changes: dict[TopicPartition, Change], *, is_written: bool, as_json: bool) -> None:
    table = Table(["topic", "partition", "committed", "new", "difference", "note"], texts=["topic", "note"])
    for tp, change in changes.items():
        old, new = (None if at is None else at.offset for at in (change.old, change.new))
        if as_json:
            row = {"topic": tp.topic, "partition": tp.partition, "committed": old, "new": new, "difference": change.difference}
            click.echo(json.dumps(row | {"note": change.note, "written": is_written and new is not None}))
        else:
            table.add(tp.topic, tp.partition, old, new, change.difference, change.note)
    if not as_json:
        table.print()


def _names(partitions: Iterable[TopicPartition]) -> str:
    first, *others = map(str, partitions)
    return first if not others else f"{first} and {len(others)} other{'' if len(others) == 1 else 's'}"
