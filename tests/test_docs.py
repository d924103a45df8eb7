"""The documentation is true: its examples run, its table of settings is the code's, and the files it points to exist."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from types import ModuleType

import pytest

from fastfetch.config import ConsumerConfig
from fastfetch.testing import Broker, encode_batch

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


def examples(page: str) -> list[tuple[str, str]]:
    """(title, code) of each Python example of a page, the title being the heading above it."""
    title, found = page, []
    for heading, language, code in re.findall(
        r"^#+ ([^\n]+)$|^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL
    ):
        if heading:
            title = heading
        elif language == "python":
            found.append((title, code))
    assert found
    return found


@pytest.fixture
def names(tmp_path: Path) -> Iterator[dict[str, object]]:
    """What the examples take for granted: a broker with a topic of two partitions, a folder of segments, some bytes."""
    with Broker() as broker:
        broker.create_topic("orders", partitions=2)
        batches = [encode_batch([(b"k", b"%d" % i)] * 10, base_offset=10 * i, codec="lz4") for i in range(10)]
        for partition in range(2):
            for batch in batches:
                broker.append("orders", partition, batch)
        folder = tmp_path / "orders-0"
        folder.mkdir()
        (folder / f"{0:020}.log").write_bytes(b"".join(batches))
        yield {"SERVERS": broker.bootstrap_servers, "FOLDER": folder, "data": b"".join(batches)}


@pytest.mark.parametrize(("title", "code"), [pytest.param(*example, id=example[0]) for example in examples("docs/guide.md")])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")  # the broker's threads, not the example's
def test_an_example_of_the_guide(title: str, code: str, names: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    example = ModuleType("example")  # so that other processes find the functions in it
    vars(example).update(names)
    monkeypatch.setitem(sys.modules, "example", example)
    exec(compile(code, f"guide.md, {title}", "exec"), vars(example))


def test_the_examples_of_the_readme(names: dict[str, object]) -> None:
    class EnoughError(Exception):
        pass

    stored: list[bytes | None] = []

    def store(values: list[bytes | None], newest: object) -> None:
        stored.extend(values)
        if len(stored) >= 100:  # the example goes on for ever
            raise EnoughError

    first, group, decoding, adapter, renamed = (code for _, code in examples("README.md"))
    names |= {"store": store, "producer_id": 7, "first_offset": 0, "total": 0}
    with pytest.raises(EnoughError):
        exec(compile(first.replace('"127.0.0.1:9092"', "SERVERS"), "README.md", "exec"), names)
    assert stored == [b"%d" % i for i in range(10) for _ in range(10)]
    stored.clear()
    with pytest.raises(EnoughError):
        exec(compile(group.replace('"127.0.0.1:9092"', "SERVERS"), "README.md", "exec"), names)
    assert set(stored) == {b"%d" % i for i in range(10)}
    exec(compile(decoding.replace("position=1042", "position=42"), "README.md", "exec"), names)
    assert (names["decoded"].next_offset, len(names["decoded"])) == (100, 58)  # type: ignore[attr-defined]
    exec(compile(adapter, "README.md", "exec"), names)
    names["fastfetch"].adapters.kafka_python.uninstall()  # type: ignore[attr-defined]
    exec(compile(renamed.replace('"127.0.0.1:9092"', "SERVERS"), "README.md", "exec"), names)
    names["consumer"].close()  # type: ignore[attr-defined]
    assert names["total"] == 200  # a digit in each of a hundred records, in both partitions


def test_the_command_lines_of_the_readme(names: dict[str, object]) -> None:
    lines = re.findall(r"^(kfetch .+?)  ", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert [line.split()[1] for line in lines] == ["demo", "cat", "cat", "dump", "lag", "groups", "serve", "bench", "doctor"]
    folder = Path(str(names["FOLDER"]))
    more = {  # made smaller, and to end
        "demo": "--records 5000",
        "cat orders": "--exit",
        "lag": "orders",
        "bench": f"--client fastfetch --rounds 1 --json {folder}.json",
    }
    for line in lines:
        line += "".join(f" {words}" for start, words in more.items() if line.startswith(f"kfetch {start}"))
        line = line.replace("127.0.0.1:9092", str(names["SERVERS"])).replace("/var/lib/kafka/orders-3", str(folder))
        line = line.replace("/var/lib/kafka/data", str(folder.parent)).replace(" --watch 5", "")
        program = line.replace("kfetch", f"exec {sys.executable} -m fastfetch", 1)
        with subprocess.Popen(
            program, shell=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
        ) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            if " serve " in line:  # until Ctrl-C
                process.send_signal(signal.SIGINT)
            _, error = process.communicate()
        assert process.returncode == (130 if " serve " in line else 0), f"{line}\n{error}"
        assert first


def test_damage_is_read_past_as_the_guide_says() -> None:
    """The guide's loop, over a batch with a flipped bit in the middle of good ones."""
    import fastfetch

    [code] = [code for title, code in examples("docs/guide.md") if title == "Bad data"]
    names: dict[str, object] = {}
    exec(compile(code, "guide.md", "exec"), names)
    good = [encode_batch([(b"k", b"%d" % i)], base_offset=i) for i in range(3)]
    bad = good[1][:-1] + bytes([good[1][-1] ^ 1])
    offsets: list[int] = []
    with Broker() as broker:
        broker.create_topic("orders")
        for batch in (good[0], bad, good[2]):
            broker.append("orders", 0, batch)
        with fastfetch.Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([fastfetch.TopicPartition("orders", 0)])
            lost = names["read_past_damage"](consumer, lambda block: offsets.extend(block.offsets.tolist()))  # type: ignore[operator]
    assert offsets == [0, 2]
    [message] = lost
    assert "orders-0" in message
    assert "CRC" in message


def test_the_table_of_settings_is_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (?:`([^`]+)`|required) \|", (ROOT / "docs/guide.md").read_text(), re.MULTILINE)
    written = {name: default or "required" for name, default in rows if name in {f.name for f in fields(ConsumerConfig)}}
    actual = {
        f.name: "required" if f.default is MISSING else repr(f.default) for f in fields(ConsumerConfig) if f.name != "explicit"
    }
    assert written == actual


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_points_to_exists(page: Path) -> None:
    text = page.read_text()
    links = {link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link}
    missing = [link for link in links if link and not (page.parent / link).exists()]
    # Paths of the tree in code marks: `fastfetch/records`, `tests/live/kafka_cluster.py`.
    for path in re.findall(r"`((?:fastfetch|tests|bench|include|docs|examples)/[\w./*{},-]*)`", text):
        pattern = re.sub(r"\{[^}]*\}", "*", path)
        if pattern.startswith("bench/out/"):
            continue  # made by a run
        if not any(ROOT.glob(pattern.rstrip("/"))):
            missing.append(path)
    assert not missing
    anchors = {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= anchors


def test_the_map_names_every_module() -> None:
    """docs/architecture.md says what each file is for; a new one has to be put on the map."""
    named = set(re.findall(r"`([\w.]+)`", (ROOT / "docs/architecture.md").read_text()))
    files = [path for suffix in ("py", "pyx") for path in (ROOT / "fastfetch").rglob(f"*.{suffix}")]
    # tables/ and cli/: one file an API, one a command
    modules = [path for path in files if path.parent.name not in {"tables", "cli"} and not path.name.startswith("__")]
    assert len(modules) > 40
    assert not {str(path.relative_to(ROOT)) for path in modules if path.stem not in named and path.name not in named}
    headers = {path.name for path in (ROOT / "include" / "fastfetch").glob("*.h")}
    assert headers <= named
