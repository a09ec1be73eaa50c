"""One HTML page that opens without a network: the verdict first, the table, the picture."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Final

from examples.flights.report import CAPTION, NAMES, Conclusion, Line
from examples.flights.run import DemoRun

_PAGE: Final = Template("""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>eos: $title</title>
<style>
  body { font: 16px/1.55 system-ui, sans-serif; color: #1c1c1c; background: #f5f6f7; margin: 0; }
  main { max-width: 76rem; margin: 0 auto; padding: 2rem 1.2rem 4rem; }
  h1 { font-size: 1.9rem; line-height: 1.25; margin: 0 0 .3rem; }
  h2 { font-size: 1.15rem; margin: 0 0 .6rem; }
  p, li { max-width: 46rem; }
  .lead { font-size: 1.1rem; color: #444; margin-top: 0; }
  .verdict { border-left: .5rem solid; padding: 1rem 1.3rem; background: #fff; }
  .good { border-color: #0072B2; } .bad { border-color: #B30000; }
  section { background: #fff; border-radius: .5rem; padding: 1.2rem 1.4rem; margin-top: 1.4rem; }
  .wide { overflow-x: auto; }
  table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
  th, td { padding: .5rem .8rem; border-bottom: 1px solid #e2e2e2; text-align: right; }
  tr > :first-child { text-align: left; font-weight: 400; }
  thead th { border-bottom: 2px solid #888; vertical-align: bottom; }
  tbody tr:last-child > * { border-bottom: 0; }
  td.harm { color: #B30000; font-weight: 700; }
  td.harm::before { content: "\\2717\\00a0"; }
  .note { color: #555; font-size: .9rem; margin-bottom: 0; }
  svg { width: 100%; min-width: 44rem; height: auto; display: block; }
</style>
<main>
<div class="verdict $mood"><h1>$verdict</h1>
<p class="lead">$story</p></div>
<section><h2>The same job, under the same kills</h2>
<div class="wide"><table><thead><tr><th></th>$head</tr></thead><tbody>
$rows
</tbody></table></div>
<p class="note">$caption</p></section>
<section><h2>Epoch by epoch</h2>
<p>Above, each epoch: when it was written, and below its bar when its rows reached a reader that
watched all the time. Below, all that this reader had got by then.</p>
<div class="wide">$picture</div></section>
$proof
</main>
</html>
""")


def write_page(
    runs: Sequence[DemoRun],
    lines: Sequence[Line],
    conclusion: Conclusion,
    proof: Sequence[str],
    picture: Path,
    path: Path,
) -> None:
    """Write the page. ``picture`` is an SVG file, which goes into it."""
    text = _PAGE.substitute(
        title="flights under kills",
        mood="bad" if conclusion.exit_code else "good",
        verdict=escape(conclusion.sentence),
        story=(
            f"{runs[-1].flights.rows:,} flights went through Spark Structured "
            "Streaming to a Pulsar topic with four partitions. A third of the way, an executor was "
            "killed while it wrote; at two thirds the driver, at the worst moment it has, and it "
            f"was started again on the same checkpoint. SIGKILL each time.{_compare(runs[:-1])}"
        ),
        head="".join(
            f'<th scope="col">{escape(NAMES[way])}</th>' for way in (run.way for run in runs)
        ),
        rows="\n".join(map(_row, lines)),
        caption=escape(CAPTION),
        picture=_inline(picture.read_text(encoding="utf-8")),
        proof=_proof(proof),
    )
    path.write_text(text, encoding="utf-8")


def _compare(others: Sequence[DemoRun]) -> str:
    return "".join(
        f" Written as such jobs are today ({NAMES[run.way]}), the topic ended with "
        f"{run.extra_copies:,} rows too many and {len(run.verdict.missing):,} missing."
        for run in others
    )


def _row(line: Line) -> str:
    cells = "".join(
        f'<td class="harm">{escape(cell)}</td>' if bad else f"<td>{escape(cell)}</td>"
        for cell, bad in zip(line.cells, line.bad, strict=True)
    )
    return f'<tr><th scope="row">{escape(line.label)}</th>{cells}</tr>'


def _proof(proof: Sequence[str]) -> str:
    if not proof:
        return ""
    items = "".join(f"<li>{escape(text[0].upper() + text[1:])}.</li>" for text in proof)
    return f"<section><h2>What the commit log says</h2><ul>{items}</ul></section>"


def _inline(svg: str) -> str:
    """The element alone, without the XML prologue, whose DTD is an address."""
    element = svg[svg.index("<svg") :]
    label = "The epochs on a time line with the kills, and the rows that a reader got"
    return element.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
