"""The page opens without a network, and says first what came of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from examples.flights.page import write_page
from examples.flights.picture import draw
from examples.flights.report import conclude, evidence, lines_of
from tests.examples.flights_runs import eos_run, today_run


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    folder: Path = tmp_path_factory.mktemp("page")
    runs = [today_run(), eos_run()]
    draw(runs, folder / "p.png", folder / "p.svg")
    assert (folder / "p.png").read_bytes().startswith(b"\x89PNG")
    proof = evidence(runs[-1])
    write_page(runs, lines_of(runs), conclude(runs), proof, folder / "p.svg", folder / "p.html")
    return (folder / "p.html").read_text()


def test_it_loads_nothing(page):
    assert not re.search(r'(?:src|href)="(?!#)', page)
    assert not re.search(r"url\((?!#)|@import|<script|<link|<!DOCTYPE svg", page)


def test_the_verdict_comes_before_table_and_picture(page):
    at = [page.index(text) for text in ("exactly once", "<table", "<svg", "What the commit log")]
    assert at == sorted(at)


def test_it_compares_with_the_way_of_today(page):
    assert "4 rows too many" in page
    assert '<td class="harm">16</td>' in page


def test_a_failure_is_a_bad_verdict(tmp_path):
    run = eos_run()
    run.drained.append(0)
    (tmp_path / "p.svg").write_text("<svg></svg>")
    lines, conclusion = lines_of([run]), conclude([run])
    write_page([run], lines, conclusion, [], tmp_path / "p.svg", tmp_path / "p.html")
    text = (tmp_path / "p.html").read_text()
    assert 'class="verdict bad"' in text
    assert "eos failed: 1 flights are there more than once" in text
