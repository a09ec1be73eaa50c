"""One HTML page that needs no network: the verdict first, then the table, then the picture."""

from __future__ import annotations

from pathlib import Path

import jinja2

from examples._demo.demo_report import DemoReport

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
    keep_trailing_newline=True,
)


def write_page(report: DemoReport, picture: Path, path: Path) -> None:
    """Write the page to ``path``; ``picture`` is an SVG file, which becomes part of it."""
    template = _ENVIRONMENT.get_template("page.html.jinja")
    text = template.render(report=report, picture=_element(picture.read_text(encoding="utf-8")))
    path.write_text(text, encoding="utf-8")


def _element(svg: str) -> str:
    """Return the SVG element without the XML prologue, whose DTD is a link."""
    return svg[svg.index("<svg") :].replace("<svg", '<svg role="img" aria-labelledby="picture"', 1)
