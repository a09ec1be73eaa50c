"""Reports and progress show foreign text as it is: no markup, emoji or control characters."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from eos.cli.reports import Report, ago, new_console
from eos.recovery._change import ChangeProgress
from eos.recovery.checks.result import ok
from eos.recovery.verbs.blocked_readers import Orphan, OrphansReport
from eos.recovery.verbs.doctor import DoctorReport
from tests.support.checkout import SHIPPED, files

NAME = "orders[prod]:key:v1"
HOSTILE = f"{NAME}\x1b[2J"

ORPHAN = Orphan(
    txn="(0,1)", status=HOSTILE, opened_at=datetime.now(UTC), age_s=1, ttl_left_s=1, topics=[NAME]
)
REPORTS: list[Report] = [
    OrphansReport(owned=0, orphans=[ORPHAN], held_back=[], topics=1, problems=[]),
    DoctorReport(checks=[ok(HOSTILE, NAME)]),
]


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: type(report).__name__)
def test_reports_show_names_as_they_are(report, capsys):
    report.render(new_console(width=200))
    shown = capsys.readouterr().out
    assert shown.count(NAME) == 2
    assert "\x1b" not in shown


def test_progress_shows_names_as_they_are(capsys):
    ChangeProgress().doing(HOSTILE)
    assert capsys.readouterr().err == f"... {NAME}\ufffd[2J\n"


def test_an_age_by_another_clock_is_no_negative_one():
    assert [ago(s) for s in (None, 18_000.0, -18_000.0)] == ["- ago", "5 h ago", "5 h from now"]


def test_no_console_makes_emoji_of_names():
    direct = [path for path in files(*SHIPPED) if " Console(" in path.read_text()]
    assert [path.name for path in direct] == ["reports.py"]
