"""One HTML page that opens without a network: the verdict first, the table, the picture."""

from __future__ import annotations

import base64
from dataclasses import fields
from html import escape
from pathlib import Path
from string import Template

from examples.flights.report import CAPTION, Line

_HEADINGS = ("written with", "rows in", "rows out", "duplicates", "missing", "partly visible", "s")
_PAGE = Template("""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>eos: flights under kills</title>
<style>
  body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 72rem; margin: 2rem auto;
         padding: 0 1rem; }
  .verdict { font-size: 1.4rem; font-weight: 600; padding: .8rem 1rem; border-left: .5rem solid; }
  .good { border-color: #0072B2; background: #eef6fb; }
  .bad { border-color: #D55E00; background: #fdf1ea; }
  table { border-collapse: collapse; margin: 1.5rem 0 .3rem; width: 100%; }
  th, td { padding: .45rem .8rem; border-bottom: 1px solid #ddd; text-align: right; }
  th:first-child, td:first-child { text-align: left; }
  caption { caption-side: bottom; text-align: left; color: #555; font-size: .9rem; }
  img { width: 100%; height: auto; margin-top: 1.5rem; }
</style>
<h1>A year of flights, written under kills</h1>
<p class="verdict $mood">$verdict</p>
<p>A third of the way an executor is killed while it writes; at two thirds the driver, Python and
JVM, at the worst moment: for eos between PREPARED and END_TXN. Then it is started again on the same
checkpoint. SIGKILL each time.</p>
<table><caption>$caption</caption>
<thead><tr>$head</tr></thead><tbody>$rows</tbody></table>
<img alt="The epochs of both runs on a time line, with kills, and the rows that a reader saw"
     src="data:image/png;base64,$picture">
</html>
""")


def write_page(lines: list[Line], problems: list[str], picture: Path, path: Path) -> None:
    """Write the page; ``problems`` empty means that eos has shown exactly-once."""
    verdict = "eos: every row exactly once." if not problems else "eos: " + "; ".join(problems)
    cells = [[_text(getattr(line, f.name)) for f in fields(line)] for line in lines]
    text = _PAGE.substitute(
        mood="bad" if problems else "good",
        verdict=escape(verdict),
        caption=escape(CAPTION),
        head="".join(f"<th>{escape(name)}</th>" for name in _HEADINGS),
        rows="".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in cells
        ),
        picture=base64.b64encode(picture.read_bytes()).decode(),
    )
    path.write_text(text, encoding="utf-8")


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
