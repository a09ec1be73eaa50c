"""The stream's files, and the flights of each epoch."""

from __future__ import annotations

import pyarrow.parquet as pq

from examples.flights.flight_files import FILES_PER_EPOCH, prepare


def test_every_flight_is_in_one_file_of_its_epoch(tmp_path):
    flights = prepare(tmp_path, rows=1_000, epochs=3)
    files = sorted(tmp_path.iterdir(), key=lambda path: path.stat().st_mtime)
    assert len(files) == 3 * FILES_PER_EPOCH
    for epoch in range(3):
        part = files[epoch * FILES_PER_EPOCH : (epoch + 1) * FILES_PER_EPOCH]
        ids = [i for path in part for i in pq.read_table(path, columns=["id"])["id"].to_pylist()]
        assert ids == list(flights.ids(epoch))
        assert {flights.epoch_of(flight) for flight in ids} == {epoch}
    assert flights.rows == 1_000
