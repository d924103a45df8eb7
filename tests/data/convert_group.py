"""Bring golden data of the Java client's group protocol into the form that the tests read: two files beside this one.

    python tests/data/convert_group.py FOLDER      FOLDER holds assignors.jsonl and metadata.jsonl

assignors.jsonl.xz, one group a line, played through several rebalances by the assignors of Apache Kafka 4.1.0:

    name, assignor
    rounds     change      what happened before it
               topics      partitions by topic
               members     [member id, instance id, topics, owned [[topic, partition]], generation, user data as hex]
               java        what Java's leader assigns: {member id: [[topic, partition]]}

consumer_protocol.jsonl.xz, one message a line:

    name, kind   kind is subscription or assignment; names repeat
    version      as which Java wrote it; null: bytes that Java did not write, odd or cut
    from         what it was written from, null as above
    hex          the bytes
    read         what Java reads in them, null: it refuses them
"""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MEMBER = ("id", "instance_id", "topics", "owned", "generation", "user_data")


def group(line: dict[str, Any]) -> dict[str, Any]:
    rounds = [
        {
            "change": one["change"],
            "topics": one["topics"],
            "members": [[member[name] for name in MEMBER] for member in one["members"]],
            "java": one["assignment"],
        }
        for one in line["rounds"]
    ]
    return {"name": line["name"], "assignor": line["assignor"], "rounds": rounds}


def message(line: dict[str, Any]) -> dict[str, Any]:
    return {**{name: line[name] for name in ("name", "kind", "version", "from", "hex")}, "read": line["read"]["fields"]}


def main(folder: Path) -> None:
    for source, target, convert in (
        ("assignors.jsonl", "assignors.jsonl.xz", group),
        ("metadata.jsonl", "consumer_protocol.jsonl.xz", message),
    ):
        lines = [convert(json.loads(text)) for text in (folder / source).read_text().splitlines()]
        text = "".join(json.dumps(line, separators=(",", ":"), ensure_ascii=True) + "\n" for line in lines)
        (HERE / target).write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
        print(f"{target}: {len(lines)} lines, {(HERE / target).stat().st_size} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
