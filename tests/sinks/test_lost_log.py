"""A commit log that is not where it was: nothing is written again unless somebody says so."""

from __future__ import annotations

import shutil

import pulsar
import pytest

from eos.errors import NewLineage
from tests.support.judge import drain


def rows(spark):
    return spark.range(50).selectExpr("cast(id as string) AS value")


def test_a_batch_key_is_refused_when_the_log_is_not_there(
    spark, pulsar_standalone, make_sink, tmp_path, name
):
    make_sink().write(rows(spark), epoch="monday")
    shutil.move(tmp_path / "log", tmp_path / "not mounted")
    for _ in range(2):
        with pytest.raises(NewLineage, match=r"has written before.*on_new_query"):
            make_sink().write(rows(spark), epoch="monday")
    assert not (tmp_path / "log").exists()
    shutil.move(tmp_path / "not mounted", tmp_path / "log")
    assert make_sink().write(rows(spark), epoch="monday").status == "skipped"
    assert len(drain(pulsar_standalone.service_url, f"persistent://public/default/{name}")) == 50


def test_topics_of_others_with_names_that_we_do_not_take_change_nothing(
    spark, pulsar_standalone, make_sink, tmp_path, name
):
    make_sink().write(rows(spark), epoch="monday")
    shutil.move(tmp_path / "log", tmp_path / "not mounted")
    client = pulsar.Client(pulsar_standalone.service_url)
    client.create_producer(f"persistent://public/default/{name} with a space").close()
    client.close()
    with pytest.raises(NewLineage, match=r"has written before"):
        make_sink().write(rows(spark), epoch="monday")


def test_a_person_may_begin_anew(spark, make_sink, tmp_path):
    make_sink().write(rows(spark), epoch="monday")
    shutil.rmtree(tmp_path / "log")
    sink = make_sink(on_new_query="continue")
    assert sink.write(rows(spark), epoch="monday").status == "written"
    assert make_sink().write(rows(spark), epoch="monday").status == "skipped"


def test_a_sink_whose_name_begins_alike_is_another_sink(spark, make_sink, name):
    make_sink(sink_id=f"{name}-x").write(rows(spark), epoch="monday")
    assert make_sink().write(rows(spark), epoch="monday").status == "written"
