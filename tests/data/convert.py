"""Bring golden data of the Java client into the form that the tests read: tests/data/java.jsonl.xz.

    python tests/data/convert.py FOLDER        FOLDER holds records.jsonl and malformed.jsonl
    python tests/data/convert.py --show NAME   print one line, readable

One JSON object a line. Kept is what a decoder can be compared by:

    name       unique; lines of malformed.jsonl have a leading "bad/"
    hex        the record set, as in a fetch response
    batches    header fields of each whole entry (left out above 20)
    count      records read, before the error if there is one
    records    [offset, timestamp, timestamp type, key, value, [[header key, value], ...]]; bytes as hex, or {"len", "sha256"}
               above 1,024 bytes; null for null. "records_as" names an earlier line with the same ones
    control    records of control batches
    next       the position after it, null without one whole batch
    error      null, or the Java exception, at which stage, with which text
    fetches    [fetch offset, isolation, aborted [[producer id, first offset]], runs of offsets delivered [[first, count]],
               position afterwards, exception or null]: what the Java consumer hands out
"""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TARGET = HERE / "java.jsonl.xz"


def short(error: dict[str, Any] | None) -> str | None:
    if error is None:
        return None
    exception = error["exception"].rpartition(".")[2]
    text = error["cause_message"] or error["message"]
    return ": ".join(part for part in (error.get("stage"), exception, text) if part)


def converted(line: dict[str, Any], prefix: str) -> dict[str, Any]:
    out = {"name": prefix + line["name"], "hex": line["hex"]}
    for name in ("batches", "records", "records_as", "control"):
        if name in line:
            out[name] = line[name]
    out["count"] = line["record_count"]
    out["next"] = line["next_offset"]
    out["error"] = short(line.get("error"))
    out["fetches"] = [
        [fetch[name] for name in ("fetch_offset", "isolation", "aborted", "offsets", "next_offset")] + [short(fetch["error"])]
        for fetch in line["fetches"]
    ]
    return out


def convert(folder: Path) -> None:
    lines = [
        converted(json.loads(text), prefix)
        for file, prefix in (("records.jsonl", ""), ("malformed.jsonl", "bad/"))
        for text in (folder / file).read_text().splitlines()
    ]
    text = "".join(json.dumps(line, separators=(",", ":"), ensure_ascii=True) + "\n" for line in lines)
    TARGET.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{len(lines)} lines, {TARGET.stat().st_size} bytes")


def show(name: str) -> None:
    for text in lzma.decompress(TARGET.read_bytes()).decode().splitlines():
        line = json.loads(text)
        if line["name"] == name:
            print(json.dumps(line, indent=1))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--show", name]:
            show(name)
        case [folder]:
            convert(Path(folder))
        case _:
            sys.exit(__doc__)
