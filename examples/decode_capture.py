"""Records out of a packet capture: pcap or pcapng in, one JSON object a line for each record that a broker sent to a client.

    tcpdump -i any -s 0 -w kafka.pcap port 9092              # as root, while clients read; -s 0: whole packets
    python examples/decode_capture.py kafka.pcap --port 9092

    kfetch serve /var/lib/kafka/data --listen 127.0.0.1:9092 # a broker to try it with
    kcat -b 127.0.0.1:9092 -t orders -C -e                   # a client

Ethernet (with VLAN tags), Linux "any" captures, loopback and raw IP; IPv4 and IPv6. TCP is put together again: segments out
of order, sent again, overlapping, numbers that wrap. Up to --window bytes of a direction are held back for what is missing;
then, and at the end of the file, it counts as missing, and reading goes on at the next packet that begins with a request, or
with the answer to one that was seen. The same where a capture begins in the middle of connections. What was left out is told
on stderr.

What it can't do: TLS; IP fragments; packets cut by the snapshot length (the rest of them is missing); answers whose requests
are not in the capture (nothing in an answer says what it is). Topics are ids until a Metadata answer has passed by. What two
clients were sent comes twice; `client` says to whom. Standard library and fastfetch only.
"""

from __future__ import annotations

import argparse
import heapq
import struct
import sys
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from json_lines import line
from watching import Conversation, Fetched, NotKafkaError

import fastfetch

# ------------------------------------------------------------------------------------------------------------------ capture files


class CaptureError(Exception):
    """The file is no capture, or is cut off within a packet."""


def packets(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """(link type, bytes) of each packet of a pcap or pcapng file. Raises CaptureError."""
    magic = file.read(4)
    if magic == b"\x0a\x0d\x0d\x0a":
        yield from _pcapng(file)
    elif magic in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1"):
        yield from _pcap(file, "<")
    elif magic in (b"\xa1\xb2\xc3\xd4", b"\xa1\xb2\x3c\x4d"):
        yield from _pcap(file, ">")
    else:
        raise CaptureError(f"no pcap or pcapng file: it begins with {magic.hex()}")


def _read(file: BinaryIO, size: int) -> bytes:
    data = file.read(size) if size <= 1 << 28 else b""
    if len(data) < size:
        raise CaptureError("the capture is cut off, or damaged")
    return data


def _pcap(file: BinaryIO, order: str) -> Iterator[tuple[int, bytes]]:
    link = struct.unpack(order + "I", _read(file, 20)[16:])[0] & 0xFFFF
    while head := file.read(16):
        if len(head) < 16:
            raise CaptureError("the capture is cut off")
        yield link, _read(file, struct.unpack_from(order + "I", head, 8)[0])


def _pcapng(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    order = "<"
    links: list[int] = []
    file.seek(0)
    while head := file.read(8):
        if len(head) < 8:
            raise CaptureError("the capture is cut off")
        start = b""
        if head[:4] == b"\x0a\x0d\x0d\x0a":  # a section: its byte order follows the length
            start = _read(file, 4)
            order, links = "<" if start == b"\x4d\x3c\x2b\x1a" else ">", []
        kind, length = struct.unpack(order + "II", head)
        if length < 12 + len(start) or length % 4:
            raise CaptureError(f"a block of {length} bytes")
        body = _read(file, length - 8 - len(start))[:-4]
        if kind == 1:  # an interface
            links.append(struct.unpack_from(order + "H", body)[0])
        elif kind == 6 and len(body) >= 20:  # a packet: interface, time, captured and original length
            interface, _, _, captured, _ = struct.unpack_from(order + "5I", body)
            if interface < len(links):
                yield links[interface], body[20 : 20 + captured]
        elif kind == 3 and links:  # a packet without a time
            yield links[0], body[4 : 4 + struct.unpack_from(order + "I", body)[0]]


# ------------------------------------------------------------------------------------------------------------------------ packets

SYN = 2
SETTLED = 32  # segments after which the first one is taken for the first, where no SYN was seen
NEAR = 1 << 20  # bytes in which a late SYN can be behind
# Link type: where the ethertype is, and where what it names begins. The others begin with a family of four bytes, or with IP.
ETHERTYPE = {1: (12, 14), 113: (14, 16), 276: (0, 20)}
FAMILY, RAW = {0, 108}, {12, 14, 101, 228, 229}
EXTENSIONS = {0, 43, 60}  # of IPv6, to be skipped


class Segment(NamedTuple):
    """One TCP segment."""

    source: tuple[str, int]
    target: tuple[str, int]
    sequence: int
    acknowledged: int
    flags: int
    payload: bytes
    size: int  # of the payload as it was sent; the capture may have less


def segment(link: int, data: bytes, counts: Counter[str]) -> Segment | None:
    """The TCP segment in a packet, or None. Raises struct.error or IndexError where the packet is cut."""
    if link in ETHERTYPE:
        at, start = ETHERTYPE[link]
        kind = int.from_bytes(data[at : at + 2], "big")
        while kind in (0x8100, 0x88A8):  # VLAN tags
            at, start = at + 4, start + 4
            kind = int.from_bytes(data[at : at + 2], "big")
        if kind not in (0x0800, 0x86DD):
            return None
        data = data[start:]
    elif link in FAMILY:
        data = data[4:]
    elif link not in RAW:
        counts[f"packets of link type {link}, which is not read"] += 1
        return None
    if data[0] >> 4 == 4:
        length, fragment, protocol = struct.unpack_from(">2xH2xHxB", data)
        header = (data[0] & 15) * 4
        source, target = (".".join(map(str, data[n : n + 4])) for n in (12, 16))
        is_fragment = fragment & 0x3FFF
    else:
        length, protocol = struct.unpack_from(">4xHB", data)
        header, is_fragment = 40, 0
        length = length and length + header
        source, target = (data[n : n + 16].hex(":", 2) for n in (8, 24))
        while protocol in EXTENSIONS:
            protocol, header = data[header], header + data[header + 1] * 8 + 8
        is_fragment = protocol == 44
    if is_fragment:
        counts["IP fragments, which are not put together"] += 1
    if protocol != 6 or is_fragment:
        return None
    # The length by IP: Ethernet pads short frames. 0: so large that the network card cuts it (or has put it together).
    tcp = data[header : length or len(data)]
    source_port, target_port, sequence, acknowledged, offset, flags = struct.unpack_from(">HHIIBB", tcp)
    start = (offset >> 4) * 4
    size = (length - header if length else len(tcp)) - start
    return Segment((source, source_port), (target, target_port), sequence, acknowledged, flags, tcp[start:], size)


# ---------------------------------------------------------------------------------------------------------------------------- TCP


class Stream:
    """One direction of a connection: segments in, bytes in order out. Numbers are counted on beyond 32 bits."""

    def __init__(self) -> None:
        self.at: int | None = None  # the number of the next byte; None: not known yet
        self.start: int | None = None  # of the first byte, as it is sent; None: no SYN was seen
        self._near: int | None = None
        self._held: list[tuple[int, int, bytes]] = []
        self.held_bytes = 0

    def number(self, sequence: int) -> int:
        """A number of 32 bits, counted on: the nearest to where the stream is."""
        near = self.at if self.at is not None else self._near
        if near is None:
            near = self._near = sequence
        return near + (sequence - near + 0x80000000) % (1 << 32) - 0x80000000

    def begin(self, sequence: int) -> None:
        self.at, self.start = self.number(sequence), sequence

    def add(self, sequence: int, payload: bytes, needed: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yields what is in order now, each piece with the `needed` that it came with."""
        if payload:
            heapq.heappush(self._held, (self.number(sequence), needed, payload))
            self.held_bytes += len(payload)
        if self.at is None and len(self._held) < SETTLED:
            return  # an earlier segment, or the SYN, may be late
        yield from self.ready()

    def ready(self) -> Iterator[tuple[int, bytes]]:
        if self.at is None and self._held:
            self.at = self._held[0][0]
        while self.at is not None and self._held and self._held[0][0] <= self.at:
            number, needed, payload = heapq.heappop(self._held)
            self.held_bytes -= len(payload)
            if new := payload[self.at - number :]:
                self.at += len(new)
                yield needed, new

    def skip(self) -> int:
        """Give up what is missing before the next bytes that are here. Returns how many."""
        if self.at is None or not self._held:
            return 0
        missing = self._held[0][0] - self.at
        self.at += missing
        return missing


class Connection:
    """Both directions. Answers wait for the requests that they acknowledge: captures are not always in order."""

    def __init__(self, client: str, window: int, counts: Counter[str], names: dict[bytes, str]) -> None:
        self.client = client
        self._window, self._counts, self._names = window, counts, names
        self._up, self._down = Stream(), Stream()
        self._waiting: deque[tuple[int, bytes]] = deque()  # (what the client has to have sent before, answer bytes)
        self._waiting_bytes = 0
        self._conversation = Conversation()
        self._placed = {True: False, False: False}  # of requests, of answers: is the next byte known to be where in a frame?

    def begins(self, from_client: bool, sequence: int) -> bool:
        """A SYN before `sequence`. False: it is another connection's, between the same ports."""
        stream = self._up if from_client else self._down
        if stream.start is None and (stream.at is None or -NEAR < stream.number(sequence) - stream.at <= 0):
            self._placed[from_client] = stream.at is None
            if stream.at is None:
                stream.begin(sequence)
            return True
        return stream.start == sequence

    def add(self, found: Segment, from_client: bool) -> Iterator[Fetched]:
        if from_client:
            for _, piece in self._up.add(found.sequence, found.payload):
                self._feed(True, piece)
        else:
            needed = self._up.number(found.acknowledged)
            self._wait(self._down.add(found.sequence, found.payload, needed))
        if self._up.held_bytes > self._window:
            self._give_up_requests()
        if self._down.held_bytes > self._window:
            yield from self._give_up_answers()
        yield from self._answers(force=self._waiting_bytes > self._window)

    def end(self) -> Iterator[Fetched]:
        """Nothing more comes."""
        while self._up.held_bytes:
            self._give_up_requests()
        while self._down.held_bytes:
            yield from self._give_up_answers()
        yield from self._answers(force=True)

    def _give_up_requests(self) -> None:
        self._lose(True, self._up.skip())
        for _, piece in self._up.ready():
            self._feed(True, piece)

    def _give_up_answers(self) -> Iterator[Fetched]:
        yield from self._answers(force=True)  # those before the gap
        self._lose(False, self._down.skip())
        self._wait(self._down.ready())

    def _lose(self, requests: bool, missing: int) -> None:
        self._counts["bytes of requests missing" if requests else "bytes of answers missing"] += missing
        self._placed[requests] = False

    def _wait(self, pieces: Iterator[tuple[int, bytes]]) -> None:
        for needed, piece in pieces:
            self._waiting.append((needed, piece))
            self._waiting_bytes += len(piece)

    def _answers(self, *, force: bool) -> Iterator[Fetched]:
        while self._waiting and (force or (self._up.at is not None and self._waiting[0][0] <= self._up.at)):
            _, piece = self._waiting.popleft()
            self._waiting_bytes -= len(piece)
            yield from self._feed(False, piece)

    def _feed(self, requests: bool, piece: bytes) -> list[Fetched]:
        """Bytes of one direction, in order."""
        if not self._placed[requests]:
            begins = self._conversation.is_request if requests else self._conversation.is_answer
            if not begins(piece):
                self._counts["bytes of requests passed over" if requests else "bytes of answers passed over"] += len(piece)
                return []
            self._conversation.lost(requests=requests)
            self._placed[requests] = True
        out: list[Fetched] = []
        try:
            if requests:
                self._conversation.requests(piece)
                return []
            for exchange in self._conversation.answers(piece):
                try:
                    out += self._conversation.read(exchange, self._names)
                except fastfetch.FastFetchError as error:
                    print(f"{self.client}: {error}", file=sys.stderr)
        except NotKafkaError:
            self._placed[requests] = False
        return out


def read(file: BinaryIO, ports: set[int], window: int, counts: Counter[str]) -> Iterator[tuple[str, Fetched]]:
    """(client, what an answer brought of one partition) of all connections to brokers at these ports."""
    connections: dict[tuple[tuple[str, int], tuple[str, int]], Connection] = {}
    names: dict[bytes, str] = {}
    try:
        for link, data in packets(file):
            counts["packets"] += 1
            try:
                found = segment(link, data, counts)
            except (struct.error, IndexError):
                counts["packets cut within their headers"] += 1
                continue
            if found is None or not {found.source[1], found.target[1]} & ports:
                continue
            counts["bytes cut off packets"] += found.size - len(found.payload)
            from_client = found.target[1] in ports
            key = (found.source, found.target) if from_client else (found.target, found.source)
            client = f"{key[0][0]}:{key[0][1]}"
            connection = connections.setdefault(key, Connection(client, window, counts, names))
            sequence = (found.sequence + bool(found.flags & SYN)) % (1 << 32)
            if found.flags & SYN and not connection.begins(from_client, sequence):
                for fetched in connection.end():  # the port is used again
                    yield client, fetched
                connection = connections[key] = Connection(client, window, counts, names)
                connection.begins(from_client, sequence)
            for fetched in connection.add(found._replace(sequence=sequence), from_client):
                yield client, fetched
    except CaptureError as error:
        print(error, file=sys.stderr)
        counts["damage"] += 1
    counts["connections"] = len(connections)
    for connection in connections.values():
        for fetched in connection.end():
            yield connection.client, fetched


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("capture", type=Path)
    arguments.add_argument("--port", type=int, action="append", help="of brokers; may be given several times; default: 9092")
    arguments.add_argument("--window", type=int, default=8 << 20, metavar="BYTES", help="held back for segments that are missing")
    args = arguments.parse_args()

    counts: Counter[str] = Counter()
    with args.capture.open("rb") as file:
        for client, fetched in read(file, set(args.port or [9092]), args.window, counts):
            counts["records"] += len(fetched.decoded or ())
            where = {"client": client, "topic": fetched.topic, "partition": fetched.answer.partition}
            sys.stdout.writelines(line(record, **where) for record in fetched.decoded or ())
            if fetched.decoded is not None and fetched.decoded.error is not None:
                print(f"{client}: {fetched.decoded.error}", file=sys.stderr)
    sys.stdout.flush()
    print(", ".join(f"{number} {what}" for what, number in counts.items() if number), file=sys.stderr)
    if counts["damage"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
