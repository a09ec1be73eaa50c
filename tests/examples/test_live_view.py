"""The pictures of the baskets' run: in the terminal while it runs, and in the report."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from io import StringIO

from rich.console import Console

from examples._demo.demo_command import Terminal, publish
from examples._demo.epoch_chart import draw
from examples._demo.subprocesses import Event
from examples.baskets.baskets_report import chart_of_baskets, report_on_baskets
from examples.baskets.live_view import LiveView, sparkline
from tests.examples.flights_runs import T0
from tests.examples.test_baskets_report import run_of, verdict


def test_a_sparkline_shows_the_newest_numbers_by_their_height():
    assert sparkline([9, 0, 1, 8], 3) == " ▁█"
    assert sparkline([], 3) == ""


def test_in_a_terminal_the_picture_shows_backlog_watermark_and_kills():
    run = run_of(sent=2)
    run.events.append(Event("progress", 1, T0, {"watermark": "2017-05-01T00:00:00Z", "late": 0}))
    run.events.append(Event("committed", 1, T0, {"rows": 3}))
    run.kills = [replace(run.kills[2], text="broker-1 killed")]
    run.backlog = [(T0, 7)]
    text = StringIO()
    view = LiveView(Console(file=text, force_terminal=True, width=120))
    with view.shown():
        view.show(run)
    for shown in ("2 baskets", "7 entries", "1 committed", "3 rows out", "watermark 2017-05-01"):
        assert shown in text.getvalue()
    assert "broker-1 killed" in text.getvalue()


def test_the_report_is_printed_drawn_and_written_as_a_page(tmp_path, capsys):
    run = run_of()
    run.backlog = [(run.began_at + second, second % 7) for second in range(20)]
    picture = partial(draw, [chart_of_baskets(run, verdict())])
    report = report_on_baskets(run, verdict())
    assert publish(Terminal(), report, picture, tmp_path, "e2e").exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e2e.html", "e2e.png"]
    assert (tmp_path / "e2e.png").read_bytes().startswith(b"\x89PNG")
    shown = capsys.readouterr().out
    assert "3: 0 extra, 0 missing, 0 wrong" in shown
    assert "eos: every window once in topic and table" in shown
    assert "backlog of the input" in (tmp_path / "e2e.html").read_text()
