"""`kfetch serve`: log segments over the real protocol, for any client to read.

The broker is that of `fastfetch.testing`; the segments stay on disk and are sent as they are. What is served is fixed when it
starts: a folder that is being written is served as it was then.
"""

from __future__ import annotations

import base64
import binascii
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from fastfetch.cli import complain
from fastfetch.cli.tables import Table
from fastfetch.errors import FastFetchError, UsageError
from fastfetch.log import snapshot_of
from fastfetch.segments import Log, partition_of
from fastfetch.testing import Broker, Logged
from fastfetch.types import TopicPartition

__all__ = ["command"]

_SHOWN = 5  # partitions in a line about a request
_PRODUCE = "Produce"
_EVERYWHERE = ("0.0.0.0", "::")
_IS_LONG = 1 << 30  # bytes that take so long that somebody at a terminal wonders


@dataclass
class Source:
    """Files of one partition, and the folder or file they were found by."""

    path: Path
    files: list[Path]


def _as_address(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, int] | None:
    if value is None:
        return None
    host, colon, port = value.rpartition(":")
    if not colon and not port.isdigit():
        host, port = value, "0"
    host = host.removeprefix("[").removesuffix("]")
    if not port.isdigit() or int(port) > 65535 or (colon and not host) or (":" in host and "[" not in value):
        example = "127.0.0.1:9092, 9092 (on 127.0.0.1), 0.0.0.0:9092 (on every address of this machine) or [::1]:9092"
        raise click.BadParameter(f"{value!r} is no address: write it as {example}", ctx, param)
    return host or "127.0.0.1", int(port)


def _as_topic(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and (not value or partition_of(Path(f"{value}-0")) != (value, 0)):
        raise click.BadParameter(f"{value!r} can't be a topic's name: up to 249 of A-Z a-z 0-9 . _ -", ctx, param)
    return value


@click.command("serve", short_help="Log segments over the real protocol, for any client to read.")
@click.argument("paths", metavar="PATH...", nargs=-1)
@click.option(
    "--listen", metavar="HOST:PORT", callback=_as_address, default="127.0.0.1:0", show_default=True, help="0: a free port."
)
@click.option("--advertise", metavar="HOST:PORT", callback=_as_address, help="What clients are told, if it is another address.")
@click.option("--topic", metavar="NAME", callback=_as_topic, help="Serve it under this name.")
@click.option("--scratch", is_flag=True, help="Let clients make topics and write to them, in memory; PATH may be left out.")
@click.option("--json", "as_json", is_flag=True, help="Say as one JSON object what is served.")
@click.option("-v", "--verbose", is_flag=True, help="A line on stderr for each request.")
def command(
    paths: tuple[str, ...],
    listen: tuple[str, int],
    advertise: tuple[str, int] | None,
    topic: str | None,
    scratch: bool,
    as_json: bool,
    verbose: bool,
) -> None:
    """Serve .log segments, partition folders such as orders-3/, or a data folder with many of them, until Ctrl-C.

    Any Kafka client reads them from the address that is printed: kcat, confluent-kafka, aiokafka, kafka-python, Java.
    Groups work, members and commits are kept in memory. Nothing can be written, but with --scratch, and then to memory alone.

    \b
      kfetch serve /var/lib/kafka/data
      kcat -b 127.0.0.1:40123 -t orders -p 3 -C -e
    """
    if not paths and not scratch:
        raise click.UsageError("say what to serve: PATH, or --scratch for topics in memory")
    sources = _find(paths, topic)
    size = _open_files(sources)
    if size > _IS_LONG and sys.stderr.isatty():
        click.echo(f"Reading the headers of {size / 1e9:.1f} GB …", err=True)
    host, port = listen
    if advertise is not None and not advertise[1]:
        if not port:
            raise click.UsageError("--advertise needs a port, unless --listen names one")
        advertise = advertise[0], port
    log = _RequestLog(verbose, writable=scratch)
    try:
        broker = Broker(host=host, port=port, advertise=advertise, writable=scratch, observe=log)
    except OSError as error:
        raise FastFetchError(f"can't listen on {host}:{port}: {error.strerror}; choose another place with --listen") from None
    with broker:
        broker.kill_node(1)  # the port is ours; nobody is let in before all of it is there, and reads a half as the whole
        remarks = list(_load(broker, sources, log.names))
        broker.restart_node(1)
        if not as_json:
            for remark in remarks:
                complain(remark)
        name, port = advertise or broker.address(1)
        name = socket.gethostname() if name in _EVERYWHERE else f"[{name}]" if ":" in name else name
        _announce(broker, f"{name}:{port}", sources, remarks, as_json)
        if host not in ("127.0.0.1", "::1", "localhost"):
            complain(f"{host} can be reached from elsewhere; whoever can connect reads all this, unencrypted")
        if sys.stderr.isatty():
            click.echo("Ctrl-C ends it.", err=True)
        threading.Event().wait()


def _find(paths: tuple[str, ...], topic: str | None) -> dict[TopicPartition, Source]:
    """Partitions and their files, in order."""
    found: dict[TopicPartition, Source] = {}
    originals: set[str] = set()
    for path in map(Path, paths):
        for folder in _partition_folders(path) or [path]:
            log = Log(folder)
            originals.add(log.topic)
            if topic is not None and len(originals) > 1:
                raise UsageError(f"--topic {topic} is one name for several topics: {', '.join(sorted(originals))}")
            name = topic or log.topic
            if not name:
                raise UsageError(f"{folder} does not stand in a partition folder such as orders-3/: say --topic NAME")
            tp = TopicPartition(name, log.partition)
            files = [segment.path for segment in log.segments]
            known = found.setdefault(tp, Source(folder, []))
            if known.files and known.files[0].parent.resolve() != files[0].parent.resolve():
                raise UsageError(f"{known.path} and {folder} are both {tp}: serve them one by one")
            known.files = sorted({*known.files, *files})
    return dict(sorted(found.items()))


def _partition_folders(path: Path) -> list[Path]:
    """Those in a data folder. Partitions that a broker is deleting or moving in have longer names."""
    if not path.is_dir() or partition_of(path.absolute())[0]:
        return []
    return sorted(
        each
        for each in path.iterdir()
        if each.is_dir() and "{}-{}".format(*partition_of(each)) == each.name and any(each.glob("*.log"))
    )


def _open_files(sources: dict[TopicPartition, Source]) -> int:
    """Let this process hold all the segments open. Returns their bytes."""
    import resource

    files = [file for source in sources.values() for file in source.files]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = len(files) + 1000
    if soft != resource.RLIM_INFINITY and wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
    return sum(file.stat().st_size for file in files)


def _load(broker: Broker, sources: dict[TopicPartition, Source], names: dict[bytes, str]) -> Iterator[str]:
    """Give everything to the broker. Yields what there is to say about it; notes the topics' names by their ids."""
    for topic in sorted({tp.topic for tp in sources}):
        here = {tp.partition: source for tp, source in sources.items() if tp.topic == topic}
        total = max(here) + 1
        topic_id = next(filter(None, (_topic_id(source.files[0].parent) for source in here.values())), None)
        internal = topic in ("__consumer_offsets", "__transaction_state")
        names[broker.create_topic(topic, total, topic_id=topic_id, internal=internal)] = topic
        for partition, source in here.items():
            known = snapshot_of(Log(source.files[0]).segments[0])
            yield from broker.load_segment(source.files, topic, partition, open_transactions=known)
        missing = [partition for partition in range(total) if partition not in here]
        if missing:
            yield f"{topic}: partitions that are not here are served empty: {', '.join(_runs(missing))}"


def _topic_id(folder: Path) -> bytes | None:
    """The topic's id as a broker wrote it beside the segments (KIP-516)."""
    try:
        lines = (folder / "partition.metadata").read_text().splitlines()
        text = next(line.partition(":")[2].strip() for line in lines if line.startswith("topic_id"))
        found = base64.urlsafe_b64decode(text + "==")
    except (OSError, StopIteration, UnicodeDecodeError, binascii.Error):
        return None
    return found if len(found) == 16 and any(found) else None


def _runs(numbers: list[int]) -> Iterator[str]:
    """[0, 1, 2, 5] -> "0-2", "5"."""
    first = last = numbers[0]
    for number in [*numbers[1:], None]:
        if number is not None and number == last + 1:
            last = number
            continue
        yield str(first) if first == last else f"{first}-{last}"
        if number is not None:
            first = last = number


def _announce(broker: Broker, address: str, sources: dict[TopicPartition, Source], remarks: list[str], as_json: bool) -> None:
    """The address, and what is to be had there."""
    rows = []
    for tp, source in sources.items():
        start, end = broker.start_offset(*tp), broker.end_offset(*tp)
        stable = broker.end_offset(*tp, isolation="read_committed")
        size = sum(file.stat().st_size for file in source.files)
        rows.append((tp.topic, tp.partition, start, end, stable, len(source.files), size, str(source.path)))
    names = ("topic", "partition", "start", "end", "stable", "segments", "bytes", "path")
    if as_json:
        partitions = [dict(zip(names, row, strict=True)) for row in rows]
        served = {"bootstrap_servers": address, "partitions": partitions, "remarks": remarks}
        click.echo(json.dumps(served))
        return
    click.echo(f"bootstrap.servers={address}")
    if not rows:
        return
    table = Table(names, texts=("topic", "path"))
    for row in rows:
        table.add(*row)
    table.print()


class _RequestLog:
    """A line on stderr for each request, if that is wanted: when, which connection, who, what, which partitions from where.

    That somebody wants to write is said in any case, once: the client only sees a connection that closes.
    """

    def __init__(self, verbose: bool, *, writable: bool) -> None:
        self.names: dict[bytes, str] = {}  # of topics, by id
        self._verbose = verbose
        self._said = writable

    def __call__(self, request: Logged) -> None:
        if self._verbose:
            self._write(request)
        elif request.api == _PRODUCE and not self._said:
            self._said = True
            complain("a client wants to write; nothing can be written here")

    def _write(self, request: Logged) -> None:
        now = datetime.fromtimestamp(time.time()).isoformat(sep=" ", timespec="milliseconds")
        where = self._partitions(request)
        if len(where) > _SHOWN:
            where[_SHOWN:] = [f"and {len(where) - _SHOWN} more"]
        refused = f" REFUSED: {request.refused}" if request.refused else ""
        line = " ".join([now, f"#{request.connection}", request.client_id or "-", f"{request.api} v{request.version}", *where])
        click.echo(line + refused, err=True)

    def _partitions(self, request: Logged) -> list[str]:
        """topic-0@12 for each partition of a request; topics alone where it names no partitions."""
        groups = request.body.get("groups") or [request.body]
        found = []
        for topic in (topic for group in groups for topic in group.get("topics") or []):
            name = topic.get("topic") or topic.get("name") or self.names.get(topic.get("topic_id", b""), "?")
            parts = topic.get("partitions") or topic.get("partition_indexes") or []
            found += [f"{name}-{_place(part)}" for part in parts] or [name]
        return found


def _place(part: dict[str, Any] | int) -> str:
    """A partition of a request, and the offset or time that is asked for."""
    if isinstance(part, int):
        return str(part)
    at = next((part[name] for name in ("fetch_offset", "timestamp", "committed_offset", "leader_epoch") if name in part), None)
    return f"{part.get('partition', part.get('partition_index'))}@{at}"
