"""A proxy between Kafka clients and a broker that decodes the answers to fetches as they go by: rates, and what looks wrong.

    python examples/decode_proxy.py 9093=127.0.0.1:9092
    kfetch serve /var/lib/kafka/data --listen 127.0.0.1:9092 --advertise 127.0.0.1:9093      # a broker to try it with
    kcat -b 127.0.0.1:9093 -t orders -C -e

One LISTEN=BROKER for each broker. **Clients follow the addresses that brokers advertise**, so a broker has to advertise the
proxy's: `advertised.listeners` of a listener that is there for this, or `kfetch serve --advertise`. Otherwise a client asks
once through the proxy where the brokers are, and goes there.

The stream is never changed, and not held up by decoding either: bytes go on first, and are decoded in a thread of their own.
If that falls behind by more than --waiting-bytes, answers are left out, and counted. Whatever goes wrong in here, the
connection goes on.

What it can't see: inside TLS (a connection that does not speak Kafka's protocol is named once and passed through), fetches
below version 4. Records that are asked for twice are counted twice. Names of topics come from Metadata answers; until one has
passed by, ids are shown.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import socket
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from queue import SimpleQueue

from watching import Conversation, Exchange, Fetched, NotKafkaError

import fastfetch

Say = Callable[[str], None]


class Backlog:
    """Exchanges on their way from connections to the decoder; so many bytes at most, for a proxy must not grow."""

    def __init__(self, most_bytes: int) -> None:
        self._queue: SimpleQueue[tuple[str, Conversation, Exchange] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._most_bytes, self._bytes = most_bytes, 0
        self.left_out = 0

    def put(self, client: str, conversation: Conversation, exchange: Exchange) -> None:
        with self._lock:
            if self._bytes and self._bytes + len(exchange.answer) > self._most_bytes:
                self.left_out += 1
                return
            self._bytes += len(exchange.answer)
        self._queue.put((client, conversation, exchange))

    def close(self) -> None:
        self._queue.put(None)

    def __iter__(self) -> Iterator[tuple[str, Conversation, Exchange]]:
        while (item := self._queue.get()) is not None:
            yield item
            with self._lock:
                self._bytes -= len(item[2].answer)


class Watch:
    """Decodes what passes by, counts it, and says what looks wrong."""

    def __init__(self, say: Say, waiting_bytes: int = 256 << 20) -> None:
        self.backlog = Backlog(waiting_bytes)
        self.counts: Counter[str] = Counter()  # written by the thread alone
        self.by_partition: Counter[str] = Counter()
        self._say = say
        self._names: dict[bytes, str] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """When all that has passed by is decoded."""
        self.backlog.close()
        self._thread.join()

    def _run(self) -> None:
        for client, conversation, exchange in self.backlog:
            try:
                for fetched in conversation.read(exchange, self._names):
                    self._count(client, fetched)
                self.counts["answers"] += 1
            except fastfetch.FastFetchError as error:
                self._suspect(client, str(error))
            except Exception:
                self._suspect(client, traceback.format_exc())

    def _count(self, client: str, fetched: Fetched) -> None:
        name = f"{fetched.topic}-{fetched.answer.partition}"
        where = f"{name}@{'?' if fetched.position is None else fetched.position}"
        if fetched.answer.error_code:
            self._suspect(client, f"{where}: the broker says {fastfetch.errors.error_name(fetched.answer.error_code)}")
        decoded = fetched.decoded
        if decoded is None:
            return
        stats = decoded.stats
        self.by_partition[name] += len(decoded)
        self.counts["records"] += len(decoded)
        self.counts["bytes"] += len(fetched.answer.records or b"")
        self.counts["inflated"] += stats.inflated_bytes
        doubts = {
            str(decoded.error): decoded.error is not None,
            f"no whole batch in {len(fetched.answer.records or b'')} bytes": not decoded.consumed and decoded.error is None,
            f"{stats.records_dropped} records repeat an offset or go back": stats.records_dropped > 0,
            f"{stats.null_lengths} lengths below -1, read as null": stats.null_lengths > 0,
            f"{stats.trailing_bytes} bytes behind the compressed data": stats.trailing_bytes > 0,
            f"it inflates to so much that only {len(decoded)} records were looked at": not fetched.looked_at_all,
        }
        for doubt in (doubt for doubt, holds in doubts.items() if holds):
            self._suspect(client, f"{where}: {doubt}")

    def _suspect(self, client: str, what: str) -> None:
        self.counts["suspicious"] += 1
        self._say(f"SUSPICIOUS to {client}: {what}")


class Proxy:
    """Listens at one address for one broker."""

    def __init__(self, listen: tuple[str, int], broker: tuple[str, int], watch: Watch, say: Say) -> None:
        self._socket = socket.create_server(listen, family=socket.AF_INET6 if ":" in listen[0] else socket.AF_INET)
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self.broker = broker
        self.connections = 0  # so far
        self._watch, self._say = watch, say

    def start(self) -> None:
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """New connections are refused; those that are open go on."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # close() alone would leave accept() waiting
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                client, address = self._socket.accept()
            except OSError:  # closed
                return
            self.connections += 1
            name = "{}:{}".format(*address[:2])
            threading.Thread(target=self._connect, args=(client, name), daemon=True).start()

    def _connect(self, client: socket.socket, name: str) -> None:
        with client:
            try:
                broker = socket.create_connection(self.broker, timeout=30)
            except OSError as error:
                self._say(f"{name}: no connection to {self.broker[0]}:{self.broker[1]}: {error}")
                return
            with broker:
                broker.settimeout(None)
                for each in (client, broker):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                conversation = Conversation()
                upwards = Glance(name, conversation.requests, self._say)
                downwards = Glance(name, partial(self._answers, name, conversation), self._say)
                back = threading.Thread(target=pump, args=(broker, client, None, downwards), daemon=True)
                back.start()
                pump(client, broker, upwards, None)  # looked at before it goes on: the answer must not be faster
                back.join()

    def _answers(self, name: str, conversation: Conversation, data: bytes) -> None:
        for exchange in conversation.answers(data):
            self._watch.backlog.put(name, conversation, exchange)


class Glance:
    """Looks at bytes until they turn out not to be Kafka's. Whatever happens in here is no business of the connection."""

    def __init__(self, name: str, look: Callable[[bytes], None], say: Say) -> None:
        self._name, self._look, self._say = name, look, say
        self._blind = False

    def __call__(self, data: bytes) -> None:
        if self._blind:
            return
        try:
            self._look(data)
        except NotKafkaError as error:
            self._blind = True
            self._say(f"{self._name}: not Kafka's protocol ({error}), perhaps TLS: passed through unseen")
        except Exception:
            self._blind = True
            self._say(f"{self._name}: passed through unseen from here on:\n{traceback.format_exc()}")


def pump(source: socket.socket, sink: socket.socket, before: Glance | None, after: Glance | None) -> None:
    """One direction, until its end. An end is passed on as an end, a failure ends both directions."""
    try:
        while data := source.recv(1 << 16):
            if before is not None:
                before(data)
            sink.sendall(data)
            if after is not None:
                after(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def report(watch: Watch, seconds: float, before: Counter[str]) -> str:
    """A line about the last seconds."""
    new = watch.counts - before
    rate = {name: new[name] / seconds for name in ("records", "bytes", "inflated")}
    left_out = f", {watch.backlog.left_out} answers left out" if watch.backlog.left_out else ""
    speed = f"{rate['records']:,.0f} records/s, {rate['bytes'] / 1e6:,.1f} MB/s, inflated {rate['inflated'] / 1e6:,.1f} MB/s"
    return f"{time.strftime('%H:%M:%S')} {new['answers']} answers, {speed}, {watch.counts['suspicious']} suspicious{left_out}"


def address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]") or "127.0.0.1", int(port)


def route(text: str) -> tuple[tuple[str, int], tuple[str, int]]:
    listen, _, broker = text.partition("=")
    return address(listen), address(broker)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("routes", nargs="+", type=route, metavar="LISTEN=BROKER", help="[HOST:]PORT=[HOST:]PORT")
    arguments.add_argument("--interval", type=float, default=1.0, metavar="SECONDS", help="between two lines")
    arguments.add_argument("--waiting-bytes", type=int, default=256 << 20, help="of answers that wait to be decoded")
    args = arguments.parse_args()

    say: Say = partial(print, flush=True)
    watch = Watch(say, args.waiting_bytes)
    proxies = [Proxy(listen, broker, watch, say) for listen, broker in args.routes]
    for proxy in proxies:
        proxy.start()
        say(f"{proxy.address[0]}:{proxy.address[1]} -> {proxy.broker[0]}:{proxy.broker[1]}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    before, then = Counter(watch.counts), time.monotonic()
    try:
        while True:
            time.sleep(args.interval)
            now = time.monotonic()
            if watch.counts != before:
                say(report(watch, now - then, before))
            before, then = Counter(watch.counts), now
    except KeyboardInterrupt:
        for proxy in proxies:
            proxy.close()
        watch.close()
    for name, records in sorted(watch.by_partition.items()):
        say(f"{name} {records} records")
    connections = sum(proxy.connections for proxy in proxies)
    say(f"{connections} connections, {watch.counts['records']} records, {watch.counts['suspicious']} suspicious")


if __name__ == "__main__":
    main()
    sys.exit(130)
