"""The page in a real browser: headless Chromium, at a desktop's and at a phone's width, light and dark.

Debian's packages are chromium and chromium-driver. Where they are missing the tests are left out, but not under CI.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fastfetch.benchmark import report
from tests.benchmark.made_runs import MACHINE, consume_run, decode_run

webdriver = pytest.importorskip("selenium.webdriver")

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
DESKTOP, PHONE, SMALL_PHONE = (1280, 900), (390, 844), (360, 640)
A4 = (718, 1046)  # with Chromium's margins of a centimetre
SIZES = [pytest.param(size, id=f"{size[0]} px") for size in (DESKTOP, PHONE, SMALL_PHONE)]
SHAPES = [
    ("none", 1, 80.0, 212.0), ("lz4", 1, 80.0, 212.0), ("zstd", 1, 80.0, 212.0), ("lz4", 8, 80.0, 212.0),
    ("lz4", 500, 80.0, 212.0), ("lz4", 1, 5.0, 212.0), ("lz4", 1, 80.0, 5000.0),
]  # fmt: skip


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with a chart of each kind, in two parts, and with names that are long and have no place to break."""
    run = consume_run(SHAPES, latency=True, machine={**MACHINE, "flags": "avx512_" * 60})
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report.page([("consume.json", run), (f"{'decode' * 20}.json", decode_run())]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (binary and driver):
        message = "no browser: apt-get install chromium chromium-driver"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chromium = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield chromium
    chromium.quit()


def show(browser: Any, page: Path, size: tuple[int, int], scheme: str = "light") -> None:
    width, height = size
    screen = {"width": width, "height": height, "deviceScaleFactor": 1 if width > 500 else 3, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    for log in ("browser", "performance"):
        browser.get_log(log)
    browser.get(page.as_uri())


BOXES = """
return [...document.querySelectorAll('svg')].map(svg => {
  const drawn = [...svg.querySelectorAll('path, use')].filter(each => !each.closest('defs'));
  const box = svg.getBoundingClientRect();
  const names = (each, what) => ['c', 'floor'].some(name => each.getAttribute('style').includes(`${what}: var(--${name}`));
  const boxes = drawn.map(each => each.getBoundingClientRect());
  return {
    title: svg.querySelector('title').textContent,
    left: box.left, right: box.right, width: box.width, height: box.height,
    bars: drawn.filter(each => names(each, 'fill') && each.getBBox().width > 20).length,
    curves: drawn.filter(each => names(each, 'stroke') && each.getBBox().width > 100).length,
    markers: svg.querySelectorAll('use').length,
    outside: boxes.filter(at => at.right > box.right + 1 || at.left < box.left - 1 || at.bottom > box.bottom + 1).length,
    letters: [...svg.querySelectorAll('text')].map(each => {
      const at = each.getBoundingClientRect();
      const matrix = each.getScreenCTM();
      return {
        text: each.textContent, inside: at.left >= box.left - 1 && at.right <= box.right + 1 && at.top >= box.top - 1,
        size: parseFloat(getComputedStyle(each).fontSize) * Math.hypot(matrix.a, matrix.b),
        box: [at.left, at.top, at.right, at.bottom],
      };
    }),
  };
});
"""


@pytest.mark.parametrize("size", SIZES)
def test_charts_are_drawn_and_can_be_read(browser: Any, written: Path, size: tuple[int, int]) -> None:
    show(browser, written, size)
    charts = browser.execute_script(BOXES)
    assert len(charts) > 12
    for chart in charts:
        title = chart["title"]
        assert chart["width"] > 300, title
        assert chart["height"] > 100, title
        assert chart["left"] >= 0, title
        assert chart["right"] <= size[0], title
        assert chart["outside"] == 0, title
        is_of_lines = title.startswith(("Growth", "Latency"))
        assert chart["curves" if is_of_lines else "bars"] > 0, title
        assert chart["markers"] > 0, title
        assert len(chart["letters"]) > 5, title
        for letters in chart["letters"]:
            assert letters["size"] >= 10, (title, letters)
            assert letters["inside"], (title, letters)


@pytest.mark.parametrize("size", SIZES)
def test_no_text_of_a_chart_lies_on_another(browser: Any, written: Path, size: tuple[int, int]) -> None:
    show(browser, written, size)
    for chart in browser.execute_script(BOXES):
        for at, one in enumerate(chart["letters"]):
            for other in chart["letters"][at + 1 :]:
                a, b = one["box"], other["box"]
                wide, high = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
                # Boxes of letters are higher than what is drawn of them.
                assert wide <= 1 or high <= 5, (chart["title"], one, other)


@pytest.mark.parametrize("size", SIZES)
def test_the_page_does_not_scroll_sideways(browser: Any, written: Path, size: tuple[int, int]) -> None:
    show(browser, written, size)
    width, client = browser.execute_script("const page = document.documentElement; return [page.scrollWidth, page.clientWidth]")
    assert width <= client <= size[0]
    outside, tables = browser.execute_script(
        """
        const isOutside = each => each.getBoundingClientRect().right > document.documentElement.clientWidth + 1;
        const outside = [...document.querySelectorAll('h1,h2,h3,h4,p,figure,.table')].filter(isOutside);
        const tables = [...document.querySelectorAll('.table')];
        return [
          outside.map(each => each.outerHTML.slice(0, 80)),
          tables.map(box => [box.scrollWidth > box.clientWidth, getComputedStyle(box).overflowX]),
        ];
        """
    )
    assert outside == []
    assert all(overflow == "auto" for _, overflow in tables)
    if size[0] < 500:
        assert any(scrolls for scrolls, _ in tables), "a table that is wider than a phone scrolls in its own box"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_error_and_no_request(browser: Any, written: Path, scheme: str) -> None:
    show(browser, written, DESKTOP, scheme)
    assert browser.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [each["params"]["request"]["url"] for each in messages if each["method"] == "Network.requestWillBeSent"]
    assert written.as_uri() in asked, "the log does show requests"
    assert [url for url in asked if not url.startswith(("data:", written.as_uri()))] == []


CONTRASTS = """
const probe = document.createElement('canvas').getContext('2d');
function luminance(colour) {
  probe.fillStyle = colour;
  const hex = probe.fillStyle;
  const parts = [1, 3, 5].map(at => parseInt(hex.slice(at, at + 2), 16) / 255);
  const linear = parts.map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}
const page = luminance(getComputedStyle(document.documentElement).backgroundColor);
function contrast(colour) {
  const found = luminance(colour);
  return (Math.max(found, page) + 0.05) / (Math.min(found, page) + 0.05);
}
const texts = [...document.querySelectorAll('h1,h2,h3,h4,p,td,th,svg text')].map(each => {
  const style = getComputedStyle(each);
  return contrast(each.tagName === 'text' ? style.fill : style.color);
});
const drawn = [...document.querySelectorAll('svg :is(path,use)[style*="var(--c"]')].filter(each => !each.closest('defs'));
const marks = drawn.map(each => {
  const style = getComputedStyle(each);
  return contrast(style.fill === 'none' ? style.stroke : style.fill);
});
return {page, least_text: Math.min(...texts), least_mark: Math.min(...marks), texts: texts.length, marks: marks.length};
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_stands_out(browser: Any, written: Path, scheme: str) -> None:
    """By WCAG 2: letters by 4.5, what is drawn by 3."""
    show(browser, written, PHONE, scheme)
    found = browser.execute_script(CONTRASTS)
    assert (found["page"] < 0.1) == (scheme == "dark")
    assert found["texts"] > 100
    assert found["marks"] > 50
    assert found["least_text"] >= 4.5
    assert found["least_mark"] >= 3


def test_the_tree_of_accessibility_names_charts_and_tables(browser: Any, written: Path) -> None:
    show(browser, written, DESKTOP)
    nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    named: dict[str, list[str]] = {}
    for node in nodes:
        named.setdefault(node["role"]["value"] if "role" in node else "", []).append(node.get("name", {}).get("value", ""))
    pictures = browser.execute_script("return document.querySelectorAll('svg').length")
    assert len(named["image"] if "image" in named else named["img"]) == pictures
    assert all(named["image"] if "image" in named else named["img"])
    assert all(named["figure"])
    assert all(named["region"])


def test_on_paper_it_is_light_and_nothing_is_cut_off(browser: Any, written: Path) -> None:
    show(browser, written, A4, "dark")
    dark = {"name": "prefers-color-scheme", "value": "dark"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": [dark]})
    background, wide = browser.execute_script(
        """
        const page = document.documentElement;
        const isWide = each => each.getBoundingClientRect().right > page.clientWidth + 1;
        const wide = [...document.querySelectorAll('table,svg,p')].filter(isWide);
        return [getComputedStyle(page).backgroundColor, wide.map(each => each.textContent.slice(0, 80))];
        """
    )
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert background == "rgb(255, 255, 255)"
    assert wide == []
