"""Runs as one page of HTML that needs nothing else: no network, no script, no font, and no file beside it.

What is in the files is other people's text: topics, errors, names of machines. It is escaped wherever it stands, and the page
forbids itself everything but its own style. The same files give the same page, byte by byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

from fastfetch.benchmark.charts import (
    WHAT_WAS_READ,
    Chart,
    Setting,
    charts,
    conflicts,
    differences,
    headings,
    median,
    settings_of,
    together,
)
from fastfetch.benchmark.plots import draw, number, standalone, variables
from fastfetch.benchmark.results import FASTFETCH, ResultsError, Run
from fastfetch.errors import printable

__all__ = ["load", "page", "pictures"]

TITLES = {"consume": "Clients reading topics", "decode": "Decoding of bytes in memory"}
METHODS = {
    "consume": (
        "Each reading is a process of its own that reads a topic from the beginning of each partition. The clients take turns, "
        "in an order that is reversed each round, after a warm-up that does not count. Records are counted, and nothing is done "
        "with them. Processor time is that of the client's process from its first record to its last; Java's has its start in "
        "it. A ratio is the median of the ratios within a round, so a machine that is slow for a while is slow for both."
    ),
    "decode": (
        "Record batches are in memory, and are decoded by each contender in turns, in an order that is reversed each round, "
        "after a warm-up that does not count. A ratio is the median of the ratios within a round."
    ),
}


def load(paths: Sequence[Path]) -> list[tuple[str, Run]]:
    """Runs by the shortest of their files' names that tells them apart. Raises OSError and ResultsError."""
    for path in paths:
        if paths.count(path) > 1:
            raise ResultsError(f"{path} is named twice")
    names = [path.name for path in paths]
    return [(name if names.count(name) == 1 else str(path), Run.load(path)) for name, path in zip(names, paths, strict=True)]


def pictures(runs: Iterable[tuple[str, Run]], folder: Path) -> list[Path]:
    """Each chart as an SVG file of its own, on white. Raises OSError, and FastFetchError without matplotlib."""
    settings = together(runs)
    written = []
    folder.mkdir(parents=True, exist_ok=True)
    for place, setting in enumerate(settings, 1):
        for chart in charts(setting):
            key = chart.key if len(settings) == 1 else f"{place}-{chart.key}"
            path = folder / f"{key}.svg"
            path.write_text(standalone(_drawn(chart, key)), encoding="utf-8")
            written.append(path)
    return written


def page(runs: Sequence[tuple[str, Run]]) -> str:
    """The HTML of it. Raises FastFetchError if matplotlib is not installed."""
    settings = together(runs)
    body = "".join(_setting(setting, place, settings) for place, setting in enumerate(settings, 1))
    colours = f":root{{{variables(dark=False)}}}@media screen and (prefers-color-scheme:dark){{:root{{{variables(dark=True)}}}}}"
    return (
        f"{_HEAD}<style>{colours}{_STYLE}</style>\n</head>\n<body>\n<header><h1>kfetch bench: report</h1>{_lead(runs, settings)}"
        f"</header>\n<main>{body}</main>\n{_FOOT}</body>\n</html>\n"
    )


# --- the parts ----------------------------------------------------------------------------------------------------------


def _lead(runs: Sequence[tuple[str, Run]], settings: Sequence[Setting]) -> str:
    if len(runs) == 1:
        return _p(f"One run, in the file {runs[0][0]}.")
    said = f"{len(runs)} runs, in the files {_listed([name for name, _ in runs])}. "
    machines = {json.dumps(run.machine, sort_keys=True) for _, run in runs}
    said += "All were taken on the same machine" if len(machines) == 1 else f"They were taken on {len(machines)} machines"
    if len(settings) == 1:
        return _p(f"{said}, with the same versions and settings, so their numbers share charts.")
    return _p(
        f"{said}, but not all in the same way: there are {len(settings)} parts, and before a number of one is held against a "
        "number of another, look at what differs."
    )


def _setting(setting: Setting, place: int, settings: Sequence[Setting]) -> str:
    several = len(settings) > 1
    mark = f"part{place}"
    title = f"Part {place}: {TITLES[setting.kind].lower()}" if several else TITLES[setting.kind]
    out = [f'<section aria-labelledby="{mark}"><h2 id="{mark}">{_text(title)}</h2>']
    if place > 1:
        out.append(_difference(settings[0], setting))
    out.append(_in_short(setting))
    if not any(run.all_readings for _, run in setting.sources):
        out.append("<p>Nobody has read anything.</p>")
    for section, found in groupby(charts(setting), key=lambda chart: chart.section):
        figures = "".join(_figure(chart, f"{mark}-{chart.key}") for chart in found)
        out.append(f"<h3>{_text(section)}</h3>{figures}")
    out += [_measured(setting), _left_out(setting), "</section>"]
    return "".join(out)


def _difference(first: Setting, other: Setting) -> str:
    found = conflicts(first.sources[0][1], other.sources[0][1])
    rows = [[name, _value(mine), _value(theirs)] for name, mine, theirs in found]
    return "<h3>What differs from part 1</h3>" + _table("What differs from part 1", ["what", "part 1", "here"], [("", rows)])


def _in_short(setting: Setting) -> str:
    """A table of how many times the others' rate ours is: a column for each data, a row for each client."""
    samples = [sample for sample in setting.samples if sample.run.spread(sample.case.id, FASTFETCH)]
    if not samples:
        return ""
    others = list(dict.fromkeys(client for s in samples for client in s.run.clients(s.case.id) if client != FASTFETCH))
    rows = [[f"{FASTFETCH}, million records/s", *(median(s.run.spread(s.case.id, FASTFETCH), 1e-6) for s in samples)]]
    rows += [[f"over {each}", *(median(s.run.ratios(s.case.id, FASTFETCH, over=each)) for s in samples)] for each in others]
    text = f"How many records a second {FASTFETCH} handles, and how many times the number of each other; medians."
    table = _table("In short", ["client", *headings(samples)], [("", rows)])
    return f'<h3>In short</h3>{_p(text)}<div class="numbers">{table}</div>'


def _figure(chart: Chart, key: str) -> str:
    caption = f'<figcaption id="{key}-caption"><h4>{_text(chart.title)}</h4>{_p(chart.text)}</figcaption>'
    table = _table(f"{chart.section}: {chart.title}", chart.head, chart.rows)
    return f'<figure aria-labelledby="{key}-caption">{caption}{_drawn(chart, key)}{table}</figure>'


def _drawn(chart: Chart, key: str) -> str:
    return draw(chart.drawing, key, f"{chart.section}: {chart.title}", chart.text)


def _measured(setting: Setting) -> str:
    runs = [run for _, run in setting.sources]
    data = [
        [
            case.id, name, case.topic, case.codec, *map(number, (case.partitions, case.records, case.batch_records)),
            *map(number, (case.record_bytes, case.wire_bytes / 1e6, case.inflated_bytes / 1e6)), _value(case.threads),
        ]
        for name, source in setting.sources
        for case in source.cases
    ]  # fmt: skip
    names = "case, file, topic, codec, partitions, records, records a batch, bytes a record, MB stored, MB inflated, threads"
    options = [each for each in WHAT_WAS_READ if any(source.settings.get(each) is not None for source in runs)]
    taken = [[name, source.taken, *(_value(source.settings.get(each)) for each in options)] for name, source in setting.sources]
    return "".join([
        f"<h3>How it was measured</h3>{_p(METHODS[setting.kind])}",
        _facts("Runs", ["file", "taken", *(option.replace("_", " ") for option in options)], taken),
        _facts("Data", names.split(", "), data),
        '<div class="facts">',
        _facts("Machine", ["what", "is"], _pairs([runs[0].machine])),
        _facts("Versions", ["of", "version"], _pairs([run.versions for run in runs])),
        _facts("Settings", ["name", "value"], _pairs(map(settings_of, runs))),
        "</div>",
    ])  # fmt: skip


def _left_out(setting: Setting) -> str:
    rows = [
        [failure.client, failure.case or "all", failure.why, name]
        for name, run in setting.sources
        for failure in run.failed
    ]  # fmt: skip
    if not rows:
        return "<h3>What failed or was left out</h3><p>Nothing.</p>"
    return "<h3>What failed or was left out</h3>" + _table(
        "What failed or was left out", ["client", "case", "why", "file"], [("", rows)]
    )


# --- pieces of HTML -----------------------------------------------------------------------------------------------------


def _facts(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return f"<div><h4>{title}</h4>{_table(title, head, [('', rows)])}</div>" if rows else ""


def _table(title: str, head: Sequence[str], rows: Sequence[tuple[str, Sequence[Sequence[str]]]]) -> str:
    """In a box that scrolls by itself. The first cell of a row names it; rows stand under the headings that they have."""
    out = [f'<div class="table" role="region" tabindex="0" aria-label="{_text(title)}"><table><thead><tr>']
    out += [f'<th scope="col">{_text(name)}</th>' for name in head]
    out.append("</tr></thead>")
    for heading, group in rows:
        out.append("<tbody>")
        if heading:
            out.append(f'<tr><th scope="rowgroup" colspan="{len(head)}">{_text(heading)}</th></tr>')
        for name, *cells in group:
            out.append(f'<tr><th scope="row">{_text(name)}</th>{"".join(f"<td>{_text(cell)}</td>" for cell in cells)}</tr>')
        out.append("</tbody>")
    out.append("</table></div>")
    return "".join(out)


def _pairs(found: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """Name and value of all that is in any of them."""
    values = {name: value for each in found for name, _, value in differences({}, each)}
    return [[name, _value(value)] for name, value in values.items()]


def _value(value: Any) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _p(text: str) -> str:
    return f"<p>{_text(text)}</p>"


def _text(text: str) -> str:
    return escape(printable(text))


_STYLE = """
*{box-sizing:border-box}
html{background:var(--page);color:var(--ink);-webkit-text-size-adjust:100%}
body{font:16px/1.5 system-ui,sans-serif;max-width:1400px;margin:0 auto;padding:1rem clamp(.75rem,3vw,2rem) 3rem}
body{overflow-wrap:anywhere}
h1{font-size:1.7rem;margin:.5rem 0}
h2{font-size:1.35rem;margin:2.5rem 0 .5rem;padding-top:1rem;border-top:2px solid var(--grid)}
h3{font-size:1.15rem;margin:2rem 0 .5rem}
h4{font-size:1rem;margin:1rem 0 .25rem}
p,ul{max-width:75ch;margin:.25rem 0 .75rem}
ul{padding-left:1.2rem}
figure{display:flex;flex-wrap:wrap;align-items:start;column-gap:2rem;margin:0 0 1.5rem;border-top:1px solid var(--grid)}
figcaption{flex:1 0 100%}
figure .table{flex:1 1 24rem;min-width:0}
figcaption p{color:var(--soft);font-size:.875rem}
svg{display:block;flex:1 1 21rem;min-width:0;max-width:24rem;height:auto;margin:.5rem 0}
svg text{font-family:system-ui,sans-serif!important}
.table{overflow-x:auto;max-width:100%;margin:.5rem 0 1rem}
figure .table{margin-top:0}
.table:focus-visible{outline:2px solid var(--c0);outline-offset:2px}
table{border-collapse:collapse;font-size:.78rem;font-variant-numeric:tabular-nums;overflow-wrap:normal}
th,td{padding:.25rem .6rem .25rem 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--grid)}
thead th{color:var(--soft);font-weight:600;vertical-align:bottom}
tbody th{font-weight:400;min-width:7rem}
tbody th[scope=rowgroup]{font-weight:600;padding-top:.6rem}
figure :is(td,th[scope=row]){white-space:nowrap}
figure thead th+th{min-width:4.6rem}
:is(figure,.numbers) :is(td,thead th+th){text-align:right}
.facts{display:flex;flex-wrap:wrap;column-gap:3rem}
.facts>div{min-width:0;max-width:100%}
footer{color:var(--soft);font-size:.875rem;margin-top:2.5rem;border-top:2px solid var(--grid);padding-top:.75rem}
@media print{
  figure{display:block}
  figure svg{width:11cm}
  figure svg,tr{break-inside:avoid}
  table{font-size:7.5pt;overflow-wrap:anywhere}
  figure :is(td,th[scope=row]){white-space:normal}
  figure thead th+th{min-width:0}
  th,td{padding-right:.4rem}
  tbody th{min-width:4rem}
  h2,h3,h4{break-after:avoid}
  .table{overflow:visible}
  body{max-width:none;padding:0;font-size:10pt}
}
"""

_HEAD = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>kfetch bench: report</title>
<link rel="icon" href="data:,">
"""

_FOOT = """\
<footer><p>Ratios travel between machines, records a second do not. Where quartiles overlap, no difference was shown.
<code>kfetch bench compare A B</code> holds two runs against each other.</p></footer>
"""
