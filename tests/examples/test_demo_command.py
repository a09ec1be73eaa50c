"""The page needs no network and shows the verdict first; the picture is drawn."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from examples._demo.demo_command import write_page
from examples._demo.epoch_chart import draw
from examples.flights.flights_report import chart_of, report_on
from tests.examples.flights_runs import eos_run, pulsar_client_run


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    folder: Path = tmp_path_factory.mktemp("page")
    runs = [pulsar_client_run(), eos_run()]
    draw([chart_of(run) for run in runs], folder / "p.png", folder / "p.svg")
    assert (folder / "p.png").read_bytes().startswith(b"\x89PNG")
    write_page(report_on(runs), folder / "p.svg", folder / "p.html")
    return (folder / "p.html").read_text()


def test_it_loads_nothing(page):
    assert not re.search(r'(?:src|href)="(?!#)', page)
    assert not re.search(r"url\((?!#)|@import|<script|<link|<!DOCTYPE svg", page)


def test_the_verdict_comes_before_table_and_picture(page):
    at = [page.index(text) for text in ("exactly once", "<table", "<svg", "What the commit log")]
    assert at == sorted(at)


def test_it_compares_with_pulsar_client(page):
    assert "4 duplicate rows" in page
    assert '<td class="harm">16</td>' in page


def test_text_is_escaped(tmp_path):
    report = replace(report_on([eos_run()]), caption="a < b & c")
    (tmp_path / "p.svg").write_text("<svg></svg>")
    write_page(report, tmp_path / "p.svg", tmp_path / "p.html")
    assert "a &lt; b &amp; c" in (tmp_path / "p.html").read_text()


def test_a_failure_is_a_bad_verdict(tmp_path):
    run = eos_run()
    run.drained.append(0)
    (tmp_path / "p.svg").write_text("<svg></svg>")
    write_page(report_on([run]), tmp_path / "p.svg", tmp_path / "p.html")
    text = (tmp_path / "p.html").read_text()
    assert 'class="verdict bad"' in text
    assert "eos failed: 1 flights have duplicates" in text
