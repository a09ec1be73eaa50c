"""pulsar-spark is built from its sources; if that fails, the other peers are measured."""

from __future__ import annotations

from bench import peers
from eos.testing import maven


def test_a_failed_build_is_reported_and_leaves_it_out(tmp_path, monkeypatch):
    monkeypatch.setenv("EOS_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv(peers.SOURCES_VARIABLE, str(tmp_path / "nothing"))
    monkeypatch.setattr(maven, "resolve", lambda *_, **__: [])
    told: list[str] = []
    assert peers.built_jars(told.append) == []
    assert "pulsar-spark is left out" in told[-1]
    assert "nothing" in told[-1]
