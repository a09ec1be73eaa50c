"""The verdict on past and present: each planted error is found and named; a small run passes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
import pytest

from examples._demo.demo_command import Terminal, publish
from examples.past.past_report import conclude, draw, report_on
from examples.past.past_run import AskedWay, PastAndPresent, PastRun, scans_of, split, sql
from tests.support.checkout import ROOT
from tests.support.offloader import offloading_to_s3

PLAN = """\
== Physical Plan ==
+- Union (3)
   :- Scan parquet  (1)
   +- BatchScan pulsar (2)


(1) Scan parquet\x20
Output [1]: [carrier#1]
PushedFilters: [IsNotNull(time_hour)]
ReadSchema: struct<carrier:string>

(2) BatchScan pulsar
Output [1]: [carrier#2]
ReadSchema: struct<carrier:string>

(3) Union

"""


def flights(*days: int) -> pa.Table:
    times = [datetime(2013, 12, day, tzinfo=UTC) for day in days]
    late = [day if day % 2 else None for day in days]
    return pa.table({"time_hour": times, "carrier": ["UA"] * len(days), "arr_delay": late})


FLIGHTS = PastAndPresent(flights(1, 2, 5), flights(25), datetime(2013, 12, 5, tzinfo=UTC))
ALL = {"UA": (4, 31)}
OTHER = {"UA": (4, 30)}
WAY = AskedWay({"UA": (2, 30)}, ALL, seconds=2.0, broker_s=0.5, idle=0.01)
RUN = PastRun(FLIGHTS, WAY, WAY, ALL, 3, (4, 1), (6, 0), (1, 2), scans_of(PLAN))


def test_the_same_right_answer_by_all_ways_passes():
    assert conclude(RUN).exit_code == 0


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"topic": replace(WAY, everything=OTHER)}, "the topic has other flights"),
        ({"history": replace(WAY, everything=OTHER)}, "table and topic have other flights"),
        ({"by_others": {**ALL, "DL": (1, None)}}, "deltalake and pulsar-client find other"),
        ({"topic": replace(WAY, answer=ALL)}, "over the topic has another answer"),
        ({"history": replace(WAY, answer={})}, "over both has another answer"),
        ({"archived_rows": 4}, "the table does not have the past alone"),
    ],
)
def test_a_planted_error_is_found_and_named(change, text):
    found = conclude(replace(RUN, **change))
    assert found.exit_code == 1
    assert text in found.sentence


@pytest.mark.parametrize("change", [{"ledgers": (4, 4)}, {"objects": (6, 6)}, {"files": (2, 2)}])
def test_without_a_trimmed_topic_or_a_skipped_file_nothing_was_shown(change):
    assert conclude(replace(RUN, **change)).exit_code == 3


def test_the_report_is_printed_drawn_and_written_as_a_page(tmp_path, capsys):
    report = report_on(replace(RUN, history=replace(WAY, everything=OTHER)))
    assert publish(Terminal(), report, partial(draw, RUN), tmp_path, "past").exit_code == 1
    assert (tmp_path / "past.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "past.html").read_text()
    shown = capsys.readouterr().out
    for text in ("PushedFilters: [IsNotNull(time_hour)]", "BatchScan pulsar", "1 of 2 files"):
        assert text in page
        assert text in shown
    assert "struct&lt;carrier:string&gt;" in page
    assert '<td class="harm">30</td>' in page


def test_the_query_needs_the_past_and_the_last_week():
    found = split(60_000)
    assert len(found.past) + len(found.present) == 60_000
    assert found.past["time_hour"][0].as_py() < found.since < found.past["time_hour"][-1].as_py()
    assert found.past["time_hour"][-1].as_py() < found.present["time_hour"][0].as_py()
    assert f"WHERE time_hour >= '{found.since:%Y-%m-%d}'" in sql(found.since)
    assert "WHERE" not in sql(None)


@pytest.mark.chaos
@pytest.mark.broker
@pytest.mark.slow
def test_a_small_run_shows_that_all_ways_agree(tmp_path):
    offloading_to_s3(tmp_path, "http://unused", "unused", entries_per_ledger=1)  # or skip
    command = ["-m", "examples.past", "--rows", "60000", "--output", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the right answer in both ways" in (tmp_path / "past.html").read_text()
