"""The page: its numbers are the file's, other people's text is text, and the same runs give the same bytes."""

from __future__ import annotations

import json
import math
import os
import re
import statistics
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from fastfetch.benchmark import charts, plots, report
from fastfetch.benchmark.plots import Bars, Group, Lines
from fastfetch.benchmark.results import Failure, Latency, Run, Spread
from fastfetch.cli import main
from fastfetch.errors import FastFetchError
from tests.benchmark.made_runs import RATES, case, consume_run, decode_run

CODECS = [("none", 1, 80.0, 212.0), ("lz4", 1, 80.0, 212.0), ("zstd", 1, 80.0, 212.0)]
PARTITIONS = [("lz4", count, 80.0, 212.0) for count in (1, 8, 64)]
BATCHES = [("lz4", 1, size, 212.0) for size in (1.0, 5.0, 80.0, 500.0)]
RECORDS = [("lz4", 1, 80.0, size) for size in (40.0, 212.0, 5000.0)]


# --- the page, read -----------------------------------------------------------------------------------------------------


@dataclass
class Table:
    head: list[str] = field(default_factory=list)
    rows: dict[tuple[str, str], list[str]] = field(default_factory=dict)  # by (heading over it, name)


class Page(HTMLParser):
    """The tables of a page by their labels, its tags and attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.tables: dict[str, Table] = {}
        self.text = ""
        self._table = Table()
        self._heading = ""
        self._row: list[str] = []
        self._in_head = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        found = dict(attrs)
        if found.get("class") == "table":
            self._table = self.tables[found["aria-label"] or ""] = Table()
            self._heading = ""
        if tag == "thead":
            self._in_head = True
        if tag == "tr":
            self._row = []
        if tag in {"td", "th"}:
            self._row.append("")
        if found.get("scope") == "rowgroup":
            self._heading = "now"

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._row:
            self._row[-1] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "thead":
            self._table.head, self._in_head = self._row, False
        if tag == "tr" and not self._in_head:
            if self._heading == "now":
                self._heading = self._row[0]
            else:
                self._table.rows[self._heading, self._row[0]] = self._row[1:]
        if tag in {"tr", "thead"} and not (tag == "tr" and self._in_head):
            self._row = []


def page(*runs: Run) -> Page:
    return Page(html(*runs))


def html(*runs: Run) -> str:
    return report.page([(f"run{at}.json", run) for at, run in enumerate(runs)])


def pictures(text: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]


def shown(value: float) -> str:
    """Three digits, or the whole part of what has more."""
    if value >= 99.95:
        return f"{value:,.0f}"
    digits = 2 - math.floor(math.log10(value))
    rounded = round(value, digits)
    return f"{rounded:.{2 - math.floor(math.log10(rounded))}f}"


def cells(table: Table, heading: str, client: str) -> dict[str, str]:
    return dict(zip(table.head[1:], table.rows[heading, client], strict=True))


# --- numbers ------------------------------------------------------------------------------------------------------------


def values(found: Any, case_id: str, client: str, of: Any) -> dict[int, float]:
    """By round, straight from the JSON."""
    return {
        r["round"]: of(r)
        for r in found["readings"]
        if r["case"] == case_id and r["client"] == client and r["latency_ms"] is None
    }  # fmt: skip


def test_the_tables_have_the_medians_of_the_file(tmp_path: Path) -> None:
    run = consume_run(CODECS, latency=True)
    run.save(tmp_path / "run.json")
    found = json.loads((tmp_path / "run.json").read_text())
    tables = Page(report.page(report.load([tmp_path / "run.json"]))).tables
    shape = "By codec: 1 partition, about 80 records a batch, about 210 bytes a record"
    for measure, title, median, of in (
        ("records", "Records a second", "median, records/s", lambda r: r["records"] / r["seconds"]),
        ("cpu", "Processor time a record", "median, ns", lambda r: r["cpu_seconds"] / r["records"] * 1e9),
        ("memory", "Peak memory", "median, MB", lambda r: r["peak_rss_bytes"] / 1e6),
    ):
        table = tables[f"{title}: {shape}"]
        assert len(table.rows) == 3 * 5, measure
        for heading, each in zip(("uncompressed", "lz4", "zstd"), found["cases"], strict=True):
            ours = values(found, each["id"], "fastfetch", of)
            for client in ("fastfetch", "kafka-python", "kafka-python + fastfetch"):
                theirs = values(found, each["id"], client, of)
                cell = cells(table, heading, client)
                low, _, high = statistics.quantiles(theirs.values(), n=4)
                ratios = [theirs[turn] / ours[turn] for turn in theirs]
                assert cell[median] == shown(statistics.median(theirs.values()))
                assert cell["quartiles"] == f"{shown(low)} – {shown(high)}"
                assert cell["× fastfetch"].split(" ")[0] == shown(statistics.median(ratios))
                assert cell["rounds"] == "5"
                if measure == "records":
                    wire = values(found, each["id"], client, lambda r: r["wire_bytes"] / r["seconds"] / 1e6)
                    assert cell["wire, MB/s"] == shown(statistics.median(wire.values()))
    latencies = [r["latency_ms"] for r in found["readings"] if r["latency_ms"] and r["client"] == "aiokafka"]
    assert len(latencies) == 5
    ours = [r["latency_ms"] for r in found["readings"] if r["latency_ms"] and r["client"] == "fastfetch"]
    for words, name in {"50 %": "p50", "90 %": "p90", "99 %": "p99", "99.9 %": "p99.9", "all": "max"}.items():
        cell = cells(tables["Latency: uncompressed"], f"{words} of the records", "aiokafka")
        assert cell["median, ms"] == shown(statistics.median(latency[name] for latency in latencies))
        ratios = [theirs[name] / mine[name] for theirs, mine in zip(latencies, ours, strict=True)]
        assert cell["× fastfetch"].split(" ")[0] == shown(statistics.median(ratios))


def test_decoding_is_held_against_the_floor() -> None:
    run = decode_run(["none", "lz4"], threads=[1])
    table = page(run).tables["Time a record: By codec: 1 partition, about 80 records a batch, about 210 bytes a record, 1 thread"]
    times = {
        client: [r.seconds / r.records * 1e9 for r in run.all_readings if (r.case, r.client) == ("orders lz4 x1", client)]
        for client in ("fastfetch", "floor", "aiokafka")
    }
    for client, found in times.items():
        cell = cells(table, "lz4", client)
        assert cell["median, ns"] == shown(statistics.median(found))
        over = statistics.median(mine / floor for mine, floor in zip(found, times["floor"], strict=True))
        assert cell["× floor"].split(" ")[0] == shown(over)


def test_what_is_in_short_is_ours_over_theirs() -> None:
    run = consume_run(CODECS)
    rates = {
        client: [r.records / r.seconds for r in run.all_readings if (r.case, r.client) == (run.cases[1].id, client)]
        for client in ("fastfetch", "aiokafka")
    }
    table = page(run).tables["In short"]
    assert cells(table, "", "fastfetch, million records/s")["lz4"] == shown(statistics.median(rates["fastfetch"]) / 1e6)
    assert cells(table, "", "over aiokafka")["lz4"] == shown(
        statistics.median(a / b for a, b in zip(*rates.values(), strict=True))
    )


def test_bars_are_as_long_as_the_numbers() -> None:
    medians = [20.1, 0.7, 3.25, 9.0]
    bars = [(f"client {at}", Spread(median, median * 0.9, median * 1.1, 5)) for at, median in enumerate(medians)]
    root = ElementTree.fromstring(plots.draw(Bars("unit", [Group("a", bars[:2]), Group("b", bars[2:], 1.0)]), "k", "t", "d"))
    lengths = []
    for path in root.iter("{http://www.w3.org/2000/svg}path"):
        if re.search(r"fill: var\(--c\d\)", path.get("style", "")):
            xs = [float(x) for x in re.findall(r"[ML] ([\d.]+)", path.attrib["d"])]
            lengths.append(max(xs) - min(xs))
    assert lengths == pytest.approx([median * lengths[0] / 20.1 for median in medians], rel=1e-4)
    assert [number for number in texts(root) if number in {"20.1", "0.700", "3.25", "9.00"}] == ["20.1", "0.700", "3.25", "9.00"]


def test_points_are_where_the_numbers_say() -> None:
    points = [(1.0, 16.0), (8.0, 4.0), (64.0, 1.0), (500.0, 0.25)]
    line = Lines("x", "y", [("fastfetch", [(x, Spread(y, y, y, 5)) for x, y in points])])
    root = ElementTree.fromstring(plots.draw(line, "k", "t", "d"))
    curve = [path.attrib["d"] for path in root.iter("{http://www.w3.org/2000/svg}path") if path.attrib["d"].count("L") == 3]
    at = [tuple(map(float, pair)) for d in curve for pair in re.findall(r"[ML] ([\d.]+) ([\d.]+)", d)]
    assert len(at) == 4, "one curve, and nothing else of four points"
    for (x, y), (drawn_x, drawn_y) in zip(points, at, strict=True):
        part_x, part_y = math.log(x / 1.0) / math.log(500.0), math.log(y / 16.0) / math.log(0.25 / 16.0)
        assert drawn_x == pytest.approx(at[0][0] + part_x * (at[-1][0] - at[0][0]), abs=0.01)
        assert drawn_y == pytest.approx(at[0][1] + part_y * (at[-1][1] - at[0][1]), abs=0.01)


def texts(root: ElementTree.Element) -> list[str]:
    return ["".join(each.itertext()).strip() for each in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (0.0644, "0.0644"), (0.7, "0.700"), (9.999, "10.0"), (99.94, "99.9"), (99.96, "100"), (1234.4, "1,234"),
        (0.00123456, "0.00123"), (1e-7, "1e-07"),
    ],
)  # fmt: skip
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert plots.number(value) == text


# --- which charts there are ---------------------------------------------------------------------------------------------


def sections(*runs: Run) -> Counter[str]:
    found = charts.together((f"run{at}.json", run) for at, run in enumerate(runs))
    return Counter(chart.section for setting in found for chart in charts.charts(setting))


BARS = {"Records a second", "Processor time a record", "Peak memory"}


@pytest.mark.parametrize(
    ("shapes", "growth"),
    [
        (CODECS, set()),
        (CODECS[:1], set()),
        (PARTITIONS, {"Growth with partitions"}),
        (BATCHES, {"Growth with batch size"}),
        (RECORDS, {"Growth with record size"}),
        ([*PARTITIONS, BATCHES[0]], {"Growth with partitions", "Growth with batch size"}),
        ([("none", 1, 80.0, 212.0), ("lz4", 8, 80.0, 212.0)], set()),
        ([("lz4", 1, 80.0, 212.0), ("lz4", 8, 5.0, 212.0)], set()),
        ([("lz4", 1, 80.0, 212.0), ("lz4", 8, 92.0, 205.0)], {"Growth with partitions"}),
        ([("lz4", 1, 80.0, 212.0), ("lz4", 1, 82.0, 208.0)], set()),
        ([("lz4", 1, 80.0, 212.0), ("lz4", 1, 125.0, 212.0)], {"Growth with batch size"}),
        ([("lz4", 1, 80.0, 212.0), ("lz4", 1, 80.0, 270.0)], {"Growth with record size"}),
        ([("lz4", 1, 80.0, 212.0), ("lz4", 8, 125.0, 212.0)], set()),
        ([("lz4", 1, 80.0, 212.0), ("lz4", 8, 80.0, 270.0)], set()),
        ([("lz4", 1, 160.0, 100.0), ("lz4", 1, 16.0, 1000.0)], {"Growth with record size"}),
        ([("lz4", 1, 1.0, 100.0), ("lz4", 1, 100.0, 100.0)], {"Growth with batch size"}),
    ],
    ids=[
        "codecs", "one shape", "partitions", "batch size", "record size", "two dimensions", "another codec is no growth",
        "two things at once are no growth", "nearly equal counts as equal", "nearly equal is one point",
        "other batch sizes", "other record sizes", "with other batch sizes", "with other record sizes",
        "batches of equal bytes are equal for record size",
        "a batch's header is no part of its only record",
    ],
)  # fmt: skip
def test_a_chart_needs_two_points_and_all_else_equal(shapes: list[Any], growth: set[str]) -> None:
    assert set(sections(consume_run(shapes))) == BARS | growth


def test_runs_that_differ_in_what_was_read_give_growth_together() -> None:
    runs = [consume_run([shape], settings={"records": shape[1], "clients": {f"peer {shape[1]}": {}}}) for shape in PARTITIONS]
    assert sections(runs[0]) == Counter(BARS)
    assert sections(*runs)["Growth with partitions"] == 1
    runs[2] = replace(runs[2], versions={"fastfetch": "0.2.0"})
    assert sections(*runs)["Growth with partitions"] == 1
    runs[1] = replace(runs[1], machine={"processor": "another"})
    assert "Growth with partitions" not in sections(*runs)


def test_a_line_needs_two_points_of_its_own() -> None:
    run = consume_run(PARTITIONS)
    run.all_readings = [r for r in run.all_readings if r.client != "aiokafka" or r.case == run.cases[0].id]
    chart = next(chart for chart in charts.charts(*charts.together([("run", run)])) if chart.section == "Growth with partitions")
    assert isinstance(chart.drawing, Lines)
    assert {client: len(points) for client, points in chart.drawing.lines} == {
        client: 3 for client in RATES if client != "aiokafka"
    }
    run.all_readings = [r for r in run.all_readings if r.case == run.cases[0].id]
    assert set(sections(run)) == BARS, "topics that nobody has read are no points"


def test_latency_and_what_else_was_not_measured_has_no_chart() -> None:
    run = consume_run(CODECS, latency=True)
    assert sections(run)["Latency"] == 1
    run.all_readings = [replace(r, cpu_seconds=None, peak_rss_bytes=None) for r in run.all_readings if r.latency_ms is None]
    assert set(sections(run)) == {"Records a second"}


def test_threads() -> None:
    assert sections(decode_run(["lz4"]))["Growth with threads"] == 1
    assert "Growth with threads" not in sections(decode_run(threads=[1]))
    assert "Records a second" not in sections(decode_run())


def test_several_runs_are_told_apart() -> None:
    one = page(consume_run(CODECS), consume_run(PARTITIONS))
    assert "same machine, with the same versions and settings" in one.text
    assert one.tags["section"] == 1
    other = page(consume_run(CODECS), consume_run(CODECS, machine={"processor": "Another"}))
    assert "taken on 2 machines" in other.text
    assert other.tags["section"] == 2
    assert other.tables["What differs from part 1"].rows["", "machine: processor"] == ["Fictional 9000 at 3 GHz", "Another"]
    newer = page(consume_run(CODECS), consume_run(CODECS, versions={"fastfetch": "0.2.0"}))
    assert "All were taken on the same machine, but not all in the same way" in newer.text
    assert newer.tables["What differs from part 1"].rows["", "version: fastfetch"] == ["0.1.0", "0.2.0"]


def test_the_same_data_twice_are_told_apart() -> None:
    table = page(consume_run(CODECS[:1], seed=1), consume_run(CODECS[:1], seed=2)).tables["Records a second: By data"]
    name = "bench-none-1p-80-212"
    assert {heading for heading, _ in table.rows} == {f"uncompressed: {name} (run0.json)", f"uncompressed: {name} (run1.json)"}


def test_what_it_was_measured_with_is_there() -> None:
    found = page(consume_run(CODECS))
    assert found.tables["Machine"].rows["", "processor"] == ["Fictional 9000 at 3 GHz"]
    assert found.tables["Versions"].rows["", "confluent-kafka"] == ["2.16.1"]
    assert found.tables["Settings"].rows["", "clients.fastfetch.max_partition_fetch_bytes"] == ["4194304"]
    assert "2026-01-31T12:00:00+00:00" in found.tables["Runs"].rows["", "run0.json"]
    data = dict(zip(found.tables["Data"].head[1:], found.tables["Data"].rows["", "bench-zstd-1p-80-212"], strict=True))
    assert data["codec"] == "zstd"
    assert data["records"] == "1,000,000"
    assert data["MB stored"] == "63.8"
    assert found.tables["What failed or was left out"].rows["", "java"] == ["all", "no JDK is installed", "run0.json"]


def test_rounds_that_are_all_equal() -> None:
    """Then quartiles are the median, and no spread may come out below 0."""
    run = consume_run(PARTITIONS, latency=True, rounds=7)
    run.all_readings = [replace(r, records=1_000_003, seconds=0.1, cpu_seconds=0.1, peak_rss_bytes=7) for r in run.all_readings]
    found = page(run)
    assert found.tags["svg"] == 5
    assert cells(found.tables["Records a second: By data"], "lz4, 8 partitions", "aiokafka")["median, records/s"] == "10,000,030"


def test_numbers_of_nothing() -> None:
    """Files are also written by hand: no data of size 0, and no time, breaks an axis."""
    shapes = [case(batch=0.5, record=size, id=f"{size} {count}", partitions=count) for size in (1, 90) for count in (0, 1, 2)]
    run = consume_run([*shapes, replace(shapes[0], id="none", batch_records=0.0, record_bytes=0.0)], latency=True)
    zero = Latency(0.0, 0.0, 0.0, 0.0, 0.0)
    run.all_readings = [
        replace(r, cpu_seconds=0.0, peak_rss_bytes=0, latency_ms=zero if r.latency_ms else None) for r in run.all_readings
    ]
    assert len(pictures(html(run))) > 5


def test_a_run_in_which_all_failed_is_a_page_too() -> None:
    run = consume_run(CODECS)
    run.all_readings, run.failed = [], [Failure(run.cases[0].id, "fastfetch", "the broker has gone")]
    found = page(run)
    assert "Nobody has read anything." in found.text
    assert "the broker has gone" in found.text
    assert found.tags["svg"] == 0


# --- other people's text ------------------------------------------------------------------------------------------------

HOSTILE = [
    "<script>alert(1)</script>", '"><img src="//x.invalid/i" onerror="alert(1)">', "</svg></style></table>", "$\\frac{1}{0$",
    "&lt;b&gt;", "nul \x00 esc \x1b[31m", "half \ud800", "\u202egnp.exe", "javascript:alert(1)", "]]>", "x" * 3000, "日本語",
    "%s {0} {light}", "",
]  # fmt: skip


def small_run(text: str, **more: Any) -> Run:
    """One with a chart of each kind, in which every text is this one."""
    shapes = [case(codec, record=size, id=f"{codec}{size}{text}", topic=text) for codec in ("none", text) for size in (99, 999)]
    told = {
        "machine": {text: text},
        "versions": {text: text},
        "settings": {text: {text: [text]}},
        "failed": [Failure(text, text, text)],
    }
    run = consume_run(shapes, rounds=1, latency=True, **(told | more))
    run.all_readings = [replace(r, client=text) if r.client == "aiokafka" else r for r in run.all_readings]
    run.taken = text
    return run


@pytest.fixture(scope="module")
def calm() -> Page:
    return page(small_run("calm"), replace(small_run("calm", machine={}), all_readings=[]))


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_stays_text(text: str, calm: Page, tmp_path: Path) -> None:
    small_run(text).save(tmp_path / "run.json")
    other = replace(small_run(text, machine={}), all_readings=[])
    written = report.page([*report.load([tmp_path / "run.json"]), (text, other)])
    (tmp_path / "report.html").write_text(written, encoding="utf-8")
    found = Page(written)
    assert set(found.tags) <= set(calm.tags), "no element that the page doesn't have by itself"
    assert {(tag, name) for tag, name, _ in found.attributes} <= {(tag, name) for tag, name, _ in calm.attributes}
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", written), "no character that can't be seen"
    assert len(pictures(written)) == found.tags["svg"] == calm.tags["svg"], "and every picture is well-formed"


def test_nothing_is_fetched_and_no_id_is_there_twice() -> None:
    written = html(consume_run([*CODECS, *PARTITIONS[1:], *RECORDS[::2]], latency=True), decode_run())
    found = Page(written)
    assert found.tags["svg"] > 10
    ids = Counter(value for _, name, value in found.attributes if name == "id")
    assert [name for name, count in ids.items() if count > 1] == []
    for tag, name, value in found.attributes:
        if name in {"href", "src", "xlink:href"}:
            assert value == "data:," if tag == "link" else value[0] == "#" and value[1:] in ids, (tag, name, value)
        for reference in re.findall(r"url\(([^)]*)\)", value):
            assert reference[0] == "#"
            assert reference[1:] in ids
        if name in {"aria-labelledby", "aria-describedby"}:
            assert set(value.split()) <= set(ids)
    assert not {"script", "iframe", "object", "img", "foreignobject"} & set(found.tags)
    assert "http" not in written.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    assert "@import" not in written


def test_pictures_have_a_title_and_a_text() -> None:
    for picture in pictures(html(consume_run(CODECS), decode_run())):
        title, description = picture[0], picture[1]
        assert (title.tag[-5:], description.tag[-4:]) == ("title", "desc")
        assert title.text
        assert description.text
        assert picture.get("role") == "img"
        assert picture.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"


# --- the same again -----------------------------------------------------------------------------------------------------


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    run = tmp_path / "run.json"
    consume_run([*CODECS, *PARTITIONS[1:]], latency=True).save(run)
    rc = tmp_path / "matplotlibrc"
    rc.write_text("font.size: 30\naxes.linewidth: 9\nlines.markeredgewidth: 7\nsvg.fonttype: path\n")
    pages = []
    for seed in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": seed, "MATPLOTLIBRC": str(rc) if seed == "2" else "", "TZ": "Asia/Tokyo"}
        out = tmp_path / f"{seed}.html"
        command = [sys.executable, "-m", "fastfetch", "bench", "report", run, "-o", out]
        subprocess.run(command, check=True, env=env, stdout=subprocess.DEVNULL)
        pages.append(out.read_bytes())
    assert pages[0] == pages[1]
    assert pages[0].decode() == report.page(report.load([run]))


# --- colours ------------------------------------------------------------------------------------------------------------


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    lighter, darker = sorted((luminance(a), luminance(b)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_colours_stand_out(dark: bool) -> None:
    """By WCAG 2: letters by 4.5, what is drawn by 3. Lines of the grid may be faint."""
    page_colour = plots.PALETTE["page"][dark]
    for name, colours in plots.PALETTE.items():
        least = {"page": 1.0, "grid": 1.0, "ink": 7.0, "soft": 4.5}.get(name, 3.0)
        assert contrast(colours[dark], page_colour) >= least, name


# --- the command --------------------------------------------------------------------------------------------------------


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(main, ["bench", "report", *map(str, arguments)])


def test_the_command_writes_a_page(tmp_path: Path) -> None:
    consume_run(CODECS).save(tmp_path / "a.json")
    decode_run().save(tmp_path / "b.json")
    done = invoke(tmp_path / "a.json", tmp_path / "b.json", "-o", tmp_path / "out.html")
    assert (done.exit_code, done.stdout, done.stderr) == (0, f"{tmp_path / 'out.html'}\n", "")
    assert Page((tmp_path / "out.html").read_text()).tags["section"] == 2


def test_the_command_writes_pictures(tmp_path: Path) -> None:
    consume_run(PARTITIONS).save(tmp_path / "a.json")
    folder = tmp_path / "new" / "pictures"
    done = invoke(tmp_path / "a.json", "--svg", folder)
    assert done.exit_code == 0, done.stderr
    files = sorted(folder.iterdir())
    assert sorted(done.stdout.splitlines()) == list(map(str, files))
    names = ["growth-with-partitions", "peak-memory", "processor-time-a-record", "records-a-second"]
    assert [file.name for file in files] == [f"{name}.svg" for name in names], "the same for another run of such topics"
    for file in files:
        root = ElementTree.fromstring(file.read_text())
        assert "var(--" not in file.read_text(), "no page gives it its colours"
        assert root.find("{http://www.w3.org/2000/svg}rect").get("fill") == "#ffffff"
        assert float(root.attrib["width"]) == 356


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is no run of kfetch bench"),
        (b"\xff\xfe\x00", "is no run of kfetch bench"),
        (b"[" * 100_000, "is no run of kfetch bench"),
        (b"[]", "has no 'format'"),
        (b'{"format": 2}', "reads format 1"),
        (b'{"format": 1, "kind": "guess"}', "known are decode and consume"),
        (b'{"format": 1, "kind": "decode"}', "no whole run"),
    ],
    ids=["empty", "binary", "deep", "a list", "a later format", "another kind", "half"],
)
def test_a_bad_file_is_one_sentence(content: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    done = invoke(path, "-o", tmp_path / "out.html")
    assert done.exit_code == 1
    assert done.stderr.count("\n") == 1
    assert why in done.stderr
    assert "bad.json" in done.stderr
    assert not (tmp_path / "out.html").exists()


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("cases", 0, "codec"), 5), (("cases", 0, "partitions"), None), (("cases", 0, "batch_records"), "many"),
        (("cases", 1, "id"), "bench-none-1p-80-212"), (("readings", 0, "seconds"), math.nan),
        (("readings", 0, "seconds"), math.inf),
        (("readings", 0, "seconds"), 1e-300),
        (("readings", 0, "seconds"), 0), (("readings", 0, "records"), True), (("readings", 0, "records"), 10**400),
        (("readings", 0, "cpu_seconds"), -1), (("readings", 0, "case"), "another"), (("readings", 0, "latency_ms"), {"p50": 1}),
        (("readings", 0), None), (("machine",), []), (("versions",), "3"), (("failed",), [3]), (("cases",), 7),
    ],
)  # fmt: skip
def test_a_wrong_value_is_one_sentence(where: tuple[Any, ...], value: object, tmp_path: Path) -> None:
    found: Any = consume_run(CODECS).as_json()
    place = found
    for step in where[:-1]:
        place = place[step]
    place[where[-1]] = value
    (tmp_path / "bad.json").write_text(json.dumps(found))
    done = invoke(tmp_path / "bad.json", "-o", tmp_path / "out.html")
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1), done.output
    assert "bad.json" in done.stderr


def test_a_file_named_twice(tmp_path: Path) -> None:
    consume_run(CODECS).save(tmp_path / "a.json")
    done = invoke(tmp_path / "a.json", tmp_path / "a.json")
    assert (done.exit_code, done.stderr) == (1, f"kfetch: {tmp_path / 'a.json'} is named twice\n")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    done = invoke(tmp_path / "no.json")
    assert (done.exit_code, done.stderr) == (1, f"kfetch: {tmp_path / 'no.json'}: No such file or directory\n")


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(FastFetchError, match=r'pip install "fastfetch\[bench\]"'):
        html(consume_run(CODECS))


def test_matplotlib_is_loaded_for_drawing_alone() -> None:
    modules = "fastfetch.benchmark.report, fastfetch.cli.bench_report, fastfetch.cli.bench_compare"
    code = f"import sys, {modules}; print('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "False\n"
