"""The peer that is built from its sources: where that can't be done, the others are measured."""

from __future__ import annotations

from bench import pulsar_spark
from eos.standalone import maven


def test_where_it_cannot_be_built_it_is_left_out_and_why_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("EOS_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv(pulsar_spark.SOURCES_VARIABLE, str(tmp_path / "nothing"))
    monkeypatch.setattr(maven, "resolve", lambda *_, **__: [])
    told: list[str] = []
    assert pulsar_spark.built_jars(told.append) == []
    assert "pulsar-spark is left out" in told[-1]
    assert "nothing" in told[-1]
