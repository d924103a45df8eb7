"""`kfetch groups`: which groups there are; who is in one of them, what they have, and how far they are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from fastfetch.cli import EXIT_FAILED, complain
from fastfetch.cli.inspector import Inspector
from fastfetch.cli.options import brokers_option, connect, isolation_option, json_option, settings_option
from fastfetch.cli.partitions import Standing, standings
from fastfetch.cli.tables import Cell, Table
from fastfetch.engine.groups import GROUP_ID_NOT_FOUND, GroupDescription, Member
from fastfetch.errors import BrokerError, FastFetchError
from fastfetch.types import TopicPartition

__all__ = ["command"]

_STATES = ("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Dead")
_TYPES = ("classic", "consumer", "share", "streams")
_OF_CONSUMERS = ("", "classic", "consumer")  # empty: the broker is too old for others


def _choices(values: Sequence[str]) -> click.Choice[str]:
    return click.Choice(values, case_sensitive=False)


@click.command("groups", short_help="Which groups there are; the members of one, their partitions and lag.")
@click.argument("groups", metavar="[GROUP]...", nargs=-1)
@brokers_option("Brokers.")
@click.option("--state", "states", type=_choices(_STATES), multiple=True, help="Only groups in this state; may be repeated.")
@click.option("--type", "types", type=_choices(_TYPES), multiple=True, help="Only groups of this type; may be repeated.")
@isolation_option("Up to which end lag counts: high watermark or last stable offset.")
@json_option()
@settings_option()
def command(
    groups: tuple[str, ...],
    brokers: str | None,
    states: tuple[str, ...],
    types: tuple[str, ...],
    isolation: str,
    as_json: bool,
    settings: dict[str, str],
) -> int:
    """All groups of the cluster; or, of each GROUP named, its members with what they are assigned, and for each partition what
    is committed and how far that is behind.

    Every broker is asked, since each knows only the groups that it coordinates. One that does not answer is named, the exit code
    is 1 then, and the others' groups are shown.
    """
    if not groups:
        with connect(brokers, settings) as inspector:
            return _list(inspector, states, types, as_json)
    if states or types:
        raise click.UsageError("--state and --type choose among all groups; they don't go with the name of one")
    code, is_first = 0, True
    for group in dict.fromkeys(groups):
        with connect(brokers, settings | {"group.id": group}, isolation_level=isolation) as inspector:
            try:
                found = inspector.describe_group(group)
                if found is None:
                    raise FastFetchError(f"group {group!r} does not exist")
                partitions = _partitions(inspector, found)
            except FastFetchError as error:
                complain(str(error))
                code = EXIT_FAILED
                continue
        if as_json:
            click.echo(json.dumps(_as_json(found, partitions)))
        else:
            if not is_first:
                click.echo()
            _print(found, partitions)
        is_first = False
    return code


# ---------------------------------------------------------------------------------------------------------------------- list


def _list(inspector: Inspector, states: tuple[str, ...], types: tuple[str, ...], as_json: bool) -> int:
    listing = inspector.list_groups(states, types)
    described = inspector.describe_groups(group.group_id for group in listing.groups if group.type in _OF_CONSUMERS)
    table = Table(["group", "type", "state", "coordinator", "members"], texts=["group", "type", "state"])
    complaints = [f"the groups of node {node_id} are missing: {error}" for node_id, error in listing.missing.items()]
    for group in listing.groups:
        kind, state, node_id, members = group.type or None, group.state or None, group.coordinator, None
        told = described.get(group.group_id)
        if isinstance(told, GroupDescription):
            kind, state, node_id, members = told.type, told.state, told.coordinator, len(told.members)
        elif isinstance(told, BrokerError) and told.code == GROUP_ID_NOT_FOUND:
            continue  # it has ended meanwhile
        elif told is not None:
            complaints.append(str(told))
        if as_json:
            row = {"group": group.group_id, "type": kind, "protocol": group.protocol, "state": state}
            click.echo(json.dumps(row | {"coordinator": node_id, "members": members}))
        else:
            table.add(group.group_id, _type(kind, group.protocol), state, node_id, members)
    if not as_json:
        table.print()
    for each in complaints:
        complain(each)
    return EXIT_FAILED if complaints else 0


def _type(kind: str | None, protocol: str) -> str | None:
    """Others than consumers may use a classic group, such as Kafka Connect's workers."""
    return f"{kind} ({protocol})" if kind == "classic" and protocol not in ("", "consumer") else kind


# ------------------------------------------------------------------------------------------------------------------ describe

Partitions = dict[TopicPartition, tuple[Standing, str | None]]
"""Where the group stands in each, and the id of the member that has it."""


def _partitions(inspector: Inspector, group: GroupDescription) -> Partitions:
    owners = {tp: member.member_id for member in group.members for tp in member.assignment or ()}
    # Before the ends: a group that keeps up is never ahead of what is shown.
    committed = inspector.committed()
    topics = {tp.topic for tp in (*committed, *owners)}
    if not topics:
        return {}
    found = standings(inspector, committed, topics, owners)
    return {tp: (standing, owners.get(tp)) for tp, standing in found.items()}


def _print(group: GroupDescription, partitions: Partitions) -> None:
    names = ["group", "type", "state", "coordinator", "assignor", "members"]
    cells: list[Cell] = [group.group_id, _type(group.type, group.protocol), group.state]
    cells += [f"{group.coordinator} at {group.address}", group.assignor, len(group.members)]
    if group.epoch is not None:
        names.append("epoch")
        cells.append(group.epoch)
    if group.assignment_epoch != group.epoch:  # the next assignment is being made
        names.append("target epoch")
        cells.append(group.assignment_epoch)
    table = Table(names, texts=["group", "type", "state", "coordinator", "assignor"])
    table.add(*cells)
    table.print()
    if group.members:
        click.echo()
        _members(group).print()
    if partitions:
        click.echo()
        table = Table(
            ["topic", "partition", "committed", "end", "lag", "member", "note"], texts=["topic", "member", "note"]
        )  # fmt: skip
        for tp, (standing, member) in partitions.items():
            table.add(tp.topic, tp.partition, standing.committed, standing.end, standing.lag, member, standing.note)
        table.print()


def _members(group: GroupDescription) -> Table:
    """What does not tell members apart is left out."""
    columns: list[tuple[str, Callable[[Member], Cell]]] = [
        ("member", lambda m: m.member_id),
        ("client", lambda m: m.client_id),
        ("host", _host),
        ("instance", lambda m: m.instance_id),
    ]
    if group.epoch is not None:
        columns.append(("epoch", lambda m: m.epoch))
        if any(m.protocol == "classic" for m in group.members):
            columns.append(("protocol", lambda m: m.protocol))
    columns.append(("partitions", lambda m: _ranges(m.assignment)))
    if any(m.target is not None and m.target != m.assignment for m in group.members):
        columns.append(("target", lambda m: _ranges(m.target)))
    names = [name for name, _ in columns]
    table = Table(names, texts=[name for name in names if name != "epoch"])
    for member in sorted(group.members, key=lambda m: (m.client_id, m.member_id)):
        table.add(*(cell(member) for _, cell in columns))
    return table


def _host(member: Member) -> str:
    return member.host.removeprefix("/")  # as Java writes an address without a name


def _ranges(partitions: Iterable[TopicPartition] | None) -> str | None:
    """orders:0-2,5 events:1, in the words that `kfetch offsets` takes. None where it is not known."""
    if partitions is None:
        return None
    runs: dict[str, list[list[int]]] = {}
    for topic, partition in sorted(partitions):
        of_topic = runs.setdefault(topic, [])
        if of_topic and of_topic[-1][1] == partition - 1:
            of_topic[-1][1] = partition
        else:
            of_topic.append([partition, partition])
    return " ".join(
        f"{topic}:" + ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in of_topic)
        for topic, of_topic in runs.items()
    )


def _as_json(group: GroupDescription, partitions: Partitions) -> dict[str, Any]:
    members: list[dict[str, Any]] = [
        {"member": m.member_id, "client": m.client_id, "host": _host(m), "instance": m.instance_id, "epoch": m.epoch}
        | {"protocol": m.protocol, "partitions": _by_topic(m.assignment), "target": _by_topic(m.target)}
        for m in group.members
    ]
    rows = [
        {"topic": tp.topic, "partition": tp.partition, "committed": s.committed, "start": s.start, "end": s.end, "lag": s.lag}
        | {"member": member}
        for tp, (s, member) in partitions.items()
    ]
    return {
        "group": group.group_id,
        "type": group.type,
        "protocol": group.protocol,
        "state": group.state,
        "coordinator": group.coordinator,
        "address": group.address,
        "assignor": group.assignor or None,
        "epoch": group.epoch,
        "target_epoch": group.assignment_epoch,
        "members": members,
        "partitions": rows,
    }


def _by_topic(partitions: Iterable[TopicPartition] | None) -> dict[str, list[int]] | None:
    if partitions is None:
        return None
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return found
