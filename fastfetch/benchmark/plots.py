"""Charts as SVG, drawn by matplotlib.

A chart is 340 units wide, which is a phone's width in CSS pixels, and its letters are 11 high: on a phone they are read as
they are, and a wide page puts several charts side by side. Bars lie, each with its client's name and number beside it, and lines
differ by marker and dash, so no colour has to be told from another.

What matplotlib writes is then made fit for a page: ids get a prefix of the chart's own, for several share the page; colours
become CSS variables, so that a dark page can have others; text stays text. The same numbers give the same bytes.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from fastfetch.benchmark.results import Spread
from fastfetch.errors import FastFetchError, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["PALETTE", "Bars", "Group", "Lines", "draw", "number", "standalone", "variables"]

WIDTH = 340
_TEXT = 11
_BAR, _HEADING, _GAP = 20, 22, 8
_MARGIN = 8  # around a picture that has no page around it

# By name: on a light page, on a dark one. Each stands out from its page by a contrast of at least 3, letters by 4.5.
PALETTE = {
    "page": ("#ffffff", "#16181d"),
    "ink": ("#1b1f24", "#e8eaed"),
    "soft": ("#57606a", "#a9b1bb"),
    "grid": ("#d8dde3", "#363c45"),
    "c0": ("#0068a8", "#58b4ec"),
    "c1": ("#c84f00", "#ff9a52"),
    "c2": ("#00805e", "#3ecba0"),
    "c3": ("#a33f97", "#e594d9"),
    "c4": ("#8a6a00", "#dcc04c"),
    "c5": ("#3d3197", "#aca4f5"),
    "c6": ("#8e2157", "#ff9dbd"),
    "floor": ("#6b7280", "#9aa2ae"),
}
_COLOURS = 7

# So that a client looks the same on every page. Others get the places behind.
_CLIENTS = (
    "fastfetch", "confluent-kafka", "aiokafka", "kafka-python", "franz-go", "java", "fastfetch poll",
    "kafka-python + fastfetch", "aiokafka + fastfetch", "kafka_api", "aiokafka_api", "confluent_api",
)  # fmt: skip
_FLOORS = ("floor", "wire")  # what a client is measured against, and no client itself
_MARKERS = "osD^vPX<>"
_DASHES = ("-", "--", "-.", ":")


@dataclass(frozen=True)
class Group:
    """Bars under one heading, in the order in which they stand. `mark` is a value that all of them are held against."""

    heading: str
    bars: Sequence[tuple[str, Spread]]
    mark: float | None = None


@dataclass(frozen=True)
class Bars:
    """A bar a client, in groups; the thin line over a bar spans its quartiles."""

    axis: str
    groups: Sequence[Group]


@dataclass(frozen=True)
class Lines:
    """A line a client through (x, spread). If `words` are there, x counts them; else the x axis is logarithmic, and spreads are
    drawn."""

    x_axis: str
    y_axis: str
    lines: Sequence[tuple[str, Sequence[tuple[float, Spread]]]]
    words: Sequence[str] = ()


def draw(chart: Bars | Lines, key: str, title: str, description: str) -> str:
    """The `<svg>` element for a page that has the `variables` as CSS. `key` makes its ids unique there: letters, digits, dashes.

    Raises FastFetchError if matplotlib is not installed.
    """
    with _matplotlib(key):
        figure = _bars(chart) if isinstance(chart, Bars) else _lines(chart)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return _for_a_page(out.getvalue(), key, title, description)


def standalone(svg: str) -> str:
    """What `draw` gave, as a file of its own: on white, for a picture can't know what page it is shown on."""
    root = ElementTree.fromstring(svg)
    width, height = (float(size) + 2 * _MARGIN for size in root.attrib["viewBox"].split()[2:])
    box = {"x": f"{-_MARGIN}", "y": f"{-_MARGIN}", "width": f"{width:g}", "height": f"{height:g}"}
    root.attrib |= {"viewBox": " ".join(box.values()), "width": box["width"], "height": box["height"]}
    root.insert(2, ElementTree.Element(f"{_SVG}rect", {**box, "fill": "var(--page)"}))
    style = ElementTree.Element(f"{_SVG}style")
    style.text = "text{font-family:system-ui,sans-serif!important}"
    root.insert(2, style)
    text = _written(root)
    for name, (light, _) in PALETTE.items():
        text = text.replace(f"var(--{name})", light)
    return text + "\n"


def variables(dark: bool) -> str:
    """The palette as CSS declarations."""
    return ";".join(f"--{name}:{colours[dark]}" for name, colours in PALETTE.items())


def number(value: float) -> str:
    """Three digits, or all of a whole number: 0.0644, 20.1, 1,234."""
    if abs(value) >= 99.95 or value == 0 or isinstance(value, int):
        return f"{value:,.0f}"
    return f"{value:#.3g}" if abs(value) >= 1e-4 else f"{value:.2g}"


# --- with matplotlib ----------------------------------------------------------------------------------------------------


@contextmanager
def _matplotlib(salt: str) -> Iterator[None]:
    """Its own defaults, whatever the user's file says, and ours over them."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise FastFetchError(
            'the charts are drawn by matplotlib, which is not installed: pip install "fastfetch[bench]"'
        ) from None
    ours: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": salt,  # ids are hashes; else of a random number
        "text.parse_math": False,  # a topic's name may have dollars in it
        "font.size": _TEXT,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "axes.edgecolor": _sentinel("grid"),
        "axes.labelcolor": _sentinel("soft"),
        "text.color": _sentinel("ink"),
        "xtick.color": _sentinel("grid"),
        "ytick.color": _sentinel("grid"),
        "xtick.labelcolor": _sentinel("soft"),
        "ytick.labelcolor": _sentinel("soft"),
        "grid.color": _sentinel("grid"),
        "grid.linewidth": 0.8,
    }
    with mpl.rc_context(), warnings.catch_warnings():
        # The reader's fonts draw the text. Ours only has to know about how long it is.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        mpl.rcdefaults()
        mpl.rcParams.update(ours)
        yield


def _sentinel(name: str) -> str:
    """A colour that stands for a name until matplotlib is done."""
    return f"#fe{list(PALETTE).index(name):04x}"


def _colour(client: str, others: Sequence[str]) -> str:
    return _sentinel("floor" if client in _FLOORS else f"c{_place(client, others) % _COLOURS}")


def _place(client: str, others: Sequence[str]) -> int:
    if client in _CLIENTS:
        return _CLIENTS.index(client)
    return len(_CLIENTS) + [other for other in others if other not in _CLIENTS].index(client)


def _canvas(height: float, left: float, top: float, bottom: float, right: float = 10) -> tuple[Figure, Axes]:
    """Axes with so much room around them, all in units of the picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH / 72, height / 72), dpi=72, facecolor="none")
    axes = figure.add_axes(
        (left / WIDTH, bottom / height, 1 - (left + right) / WIDTH, 1 - (bottom + top) / height), facecolor="none"
    )
    return figure, axes


def _bars(chart: Bars) -> Figure:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    clients = list(dict.fromkeys(client for group in chart.groups for client, _ in group.bars))
    names = {client: _wrapped(client) for client in clients}
    left = 8 + max(_width(line) for name in names.values() for line in name)
    rows = sum(_HEADING + _GAP + sum(_height(names[client]) for client, _ in group.bars) for group in chart.groups)
    figure, axes = _canvas(rows + 44, left, 4, 40)
    # A bar with its number beside it has to fit: the number takes about a quarter.
    longest = max((spread.high for group in chart.groups for _, spread in group.bars), default=0) or 1
    axes.set_xlim(0, longest * 1.3)
    axes.set_ylim(rows, 0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(_at_an_axis))
    axes.grid(axis="x")
    axes.set_xlabel(chart.axis)
    y = 0.0
    for group in chart.groups:
        # At the picture's left edge: over the names, not over the bars.
        axes.annotate(
            _cut(group.heading, WIDTH),
            (0, y + _HEADING / 2),
            (-left + 2, 0),
            textcoords="offset points",
            va="center",
            weight="bold",
        )
        y += _HEADING
        begun = y
        for client, spread in group.bars:
            height = _height(names[client])
            middle = y + height / 2
            axes.barh(middle, spread.median, 12, color=_colour(client, clients))
            axes.plot([spread.low, spread.high], [middle, middle], color=_sentinel("ink"), linewidth=1.4, solid_capstyle="butt")
            axes.annotate(
                "\n".join(names[client]),
                (0, middle),
                (-6, 0),
                textcoords="offset points",
                ha="right",
                va="center",
                linespacing=1.15,
            )
            end = max(spread.median, spread.high)
            # Before the lines: one may stand where the number does.
            behind = {"facecolor": _sentinel("page"), "edgecolor": "none", "pad": 0.5}
            axes.annotate(number(spread.median), (end, middle), (4, 0), textcoords="offset points", va="center", bbox=behind)
            y += height
        if group.mark is not None:
            axes.plot([group.mark, group.mark], [begun, y], color=_sentinel("ink"), linewidth=1.2, linestyle=(0, (2, 2)))
        y += _GAP
    return figure


def _lines(chart: Lines) -> Figure:
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

    clients = [client for client, _ in chart.lines]
    beside = 2 if max(map(len, clients)) < 20 else 1
    legend = 15 * -(-len(clients) // beside)
    figure, axes = _canvas(220 + legend, 56, legend + 12, 42)
    for client, points in chart.lines:
        place = _place(client, clients)
        at = [x for x, _ in points]
        medians = [spread.median for _, spread in points]
        # Where x counts words there are as many points of each line above one another, and their spreads hide each other.
        errors = [[s.median - s.low for _, s in points], [s.high - s.median for _, s in points]]
        axes.errorbar(
            at, medians, None if chart.words else errors, color=_colour(client, clients), label=_cut(client, 280 / beside),
            linewidth=1.6, elinewidth=1.2, capsize=2.5, markersize=5.5,
            marker=_MARKERS[place % len(_MARKERS)], linestyle=_DASHES[place // 2 % len(_DASHES)],
        )  # fmt: skip
    plain = FuncFormatter(_at_an_axis)
    spreads = [spread for _, points in chart.lines for _, spread in points]
    least, most = min(spread.low for spread in spreads), max(spread.high for spread in spreads)
    if least > 0 and most / least > 8:
        axes.set_yscale("log")
        axes.set_ylim(least / 1.4, most * 1.4)
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if most / least > 60 else (1.0, 2.0, 5.0)))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(0, most * 1.08 or 1)
        axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(plain)
    places = sorted({x for _, points in chart.lines for x, _ in points})
    if chart.words:
        axes.set_xlim(-0.3, len(chart.words) - 0.7)
        axes.set_xticks(range(len(chart.words)), chart.words)
    else:
        axes.set_xscale("log")
        axes.set_xlim(places[0] / 1.25, places[-1] * 1.25)
        axes.xaxis.set_major_locator(FixedLocator(_apart(places)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(plain)
    axes.grid()
    axes.set_xlabel(chart.x_axis)
    axes.set_ylabel(chart.y_axis)
    figure.legend(
        *axes.get_legend_handles_labels(), loc="upper left", bbox_to_anchor=(0, 1), ncols=beside, frameon=False, borderaxespad=0,
        columnspacing=1.2, handlelength=2.6, labelspacing=0.3,
    )  # fmt: skip
    return figure


def _at_an_axis(value: float, _: object) -> str:
    return f"{float(f'{value:.3g}'):,g}" if abs(value) < 100 else number(value)


def _apart(places: Sequence[float]) -> list[float]:
    """Those whose numbers don't run into one another on a logarithmic axis; the first and the last are among them."""
    first, last = places[0], places[-1]
    kept = [first]
    least = (last / first) ** (1 / 7)  # at most eight numbers
    for place in places[1:-1]:
        if place / kept[-1] >= least and last / place >= least:
            kept.append(place)
    return [*kept, last] if last > first else kept


def _wrapped(name: str) -> list[str]:
    """In two lines if it is long and can be parted."""
    if len(name) > 16 and " " in name:
        spaces = [space.start() for space in re.finditer(" ", name)]
        at = min(spaces, key=lambda at: (name[at + 1 : at + 2] != "+", abs(at - len(name) / 2)))
        return [_cut(name[:at], 130), _cut(name[at + 1 :], 130)]
    return [_cut(name, 130)]


def _height(name: Sequence[str]) -> int:
    return _BAR if len(name) == 1 else 33


def _width(text: str) -> float:
    """Of a line of text, about and rather too much."""
    return 0.6 * _TEXT * len(text)


def _cut(text: str, width: float) -> str:
    """What can be seen of it, and that as far as there is room."""
    text = printable(text)
    most = int(width / 0.6 / _TEXT)
    return text if len(text) <= most else text[: most - 1] + "…"


# --- from matplotlib's file to an element of a page ---------------------------------------------------------------------

_SVG, _XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"


def _for_a_page(svg: str, key: str, title: str, description: str) -> str:
    root = ElementTree.fromstring(svg)
    for child in list(root):  # a licence-like block of metadata, and a style for * that would go for the page, too
        if child.tag == f"{_SVG}metadata" or child.find(f"{_SVG}style") is not None:
            root.remove(child)
    del root.attrib["width"], root.attrib["height"]
    root.attrib |= {"role": "img", "aria-labelledby": f"{key}-title {key}-text"}
    root.attrib |= {"stroke-linejoin": "round", "stroke-linecap": "butt"}
    for tag, text, name in (("desc", description, "text"), ("title", title, "title")):
        element = ElementTree.Element(_SVG + tag, {"id": name})
        element.text = printable(text)
        root.insert(0, element)
    for element in root.iter():
        if "id" in element.attrib:
            element.attrib["id"] = f"{key}-{element.attrib['id']}"
        if f"{_XLINK}href" in element.attrib:  # only ever to a marker of the same picture
            element.attrib["href"] = element.attrib.pop(f"{_XLINK}href").replace("#", f"#{key}-")
        for name in ("style", "clip-path"):
            if name in element.attrib:
                element.attrib[name] = _with_variables(element.attrib[name]).replace("url(#", f"url(#{key}-")
    return _written(root)


def _with_variables(style: str) -> str:
    for name in PALETTE:
        style = style.replace(_sentinel(name), f"var(--{name})")
    return style


def _written(root: ElementTree.Element) -> str:
    ElementTree.register_namespace("", _SVG.strip("{}"))
    return ElementTree.tostring(root, encoding="unicode")
