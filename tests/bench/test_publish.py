"""A section of a page is replaced, and nothing else."""

from __future__ import annotations

import json

import pytest

from bench.publish import between, publish, put_between


def test_a_section_is_replaced_and_the_rest_of_the_file_stays(tmp_path):
    path = tmp_path / "README.md"
    path.write_text("before\n<!-- bench -->\nold\n<!-- /bench -->\nafter\n")
    put_between(path, "new\n", "bench")
    put_between(path, "newer\n", "bench")
    assert between(path, "bench") == "newer\n"
    assert path.read_text() == "before\n<!-- bench -->\nnewer\n<!-- /bench -->\nafter\n"
    with pytest.raises(ValueError, match="no <!-- other -->"):
        put_between(path, "new\n", "other")


def test_results_go_to_a_json_file_and_to_the_section_of_its_name(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- bench-sending -->\n<!-- /bench-sending -->\n")
    publish({"rows": 7}, tmp_path / "out" / "sending.json", "7 rows\n", page)
    assert json.loads((tmp_path / "out" / "sending.json").read_text()) == {"rows": 7}
    assert between(page, "bench-sending") == "7 rows\n"
