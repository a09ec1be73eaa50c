"""A lost commit log: nothing is written again unless an option allows it."""

from __future__ import annotations

import shutil

import pulsar
import pytest

from eos.errors import NewLineage
from tests.support.judge import drain


def rows(spark):
    return spark.range(50).selectExpr("cast(id as string) AS value")


def test_a_batch_key_is_refused_without_the_log(
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


def test_other_topics_with_odd_names_are_ignored(
    spark, pulsar_standalone, make_sink, tmp_path, name
):
    make_sink().write(rows(spark), epoch="monday")
    shutil.move(tmp_path / "log", tmp_path / "not mounted")
    client = pulsar.Client(pulsar_standalone.service_url)
    client.create_producer(f"persistent://public/default/{name} with a space").close()
    client.close()
    with pytest.raises(NewLineage, match=r"has written before"):
        make_sink().write(rows(spark), epoch="monday")


def test_on_new_query_continue_starts_a_new_log(spark, make_sink, tmp_path):
    make_sink().write(rows(spark), epoch="monday")
    shutil.rmtree(tmp_path / "log")
    sink = make_sink(on_new_query="continue")
    assert sink.write(rows(spark), epoch="monday").status == "written"
    assert make_sink().write(rows(spark), epoch="monday").status == "skipped"


def test_a_sink_id_with_the_same_prefix_is_another_sink(spark, make_sink, name):
    make_sink(sink_id=f"{name}-x").write(rows(spark), epoch="monday")
    assert make_sink().write(rows(spark), epoch="monday").status == "written"
