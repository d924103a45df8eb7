"""`kfetch bench report`: runs as a page of charts and tables, or as charts alone."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["command"]


@click.command("report", short_help="Draw runs as one HTML page.")
@click.argument("paths", metavar="RUN.json...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o", "--out", metavar="FILE", default="report.html", show_default=True, type=click.Path(path_type=Path), help="The page."
)
@click.option(
    "--svg", metavar="FOLDER", type=click.Path(path_type=Path), help="Only the charts, each an SVG file in this folder."
)
def command(paths: tuple[Path, ...], out: Path, svg: Path | None) -> None:
    """Draw runs as one self-contained HTML page.

    Runs of one kind, machine, versions and settings share charts, so a run for each number of partitions gives a line through
    them. Others get a part of their own, which says what differs.
    """
    from fastfetch.benchmark import report

    runs = report.load(paths)
    if svg is not None:
        for path in report.pictures(runs, svg):
            click.echo(path)
        return
    out.write_text(report.page(runs), encoding="utf-8")
    click.echo(out)
