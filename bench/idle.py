"""What a stream costs that has next to nothing to do: ten rows each second."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from bench.environment import Setting
from bench.paths import EosSink
from bench.processor import processor_s

_ROWS_PER_S: Final = 10
_WARM_UP_S: Final = 20


def measure(setting: Setting, seconds: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """``{"cores": {process: share of a core}, "seconds": how long}``."""
    tell(f"ten rows each second, for {seconds} s")
    with setting.topic(1) as topic:
        sink = EosSink(setting, topic)
        query = (
            setting.spark.readStream.format("rate")
            .option("rowsPerSecond", _ROWS_PER_S)
            .load()
            .selectExpr("string(value) AS value")
            .writeStream.foreachBatch(sink.sink)
            .option("checkpointLocation", str(setting.folder / "idle"))
            .start()
        )
        try:
            query.awaitTermination(_WARM_UP_S)  # raises what has ended it
            before, rows, began = processor_s(setting), _rows(setting, topic), time.monotonic()
            query.awaitTermination(seconds)
            after, took_s = processor_s(setting), time.monotonic() - began
            written = _rows(setting, topic) - rows
        finally:
            query.stop()
            sink.close()
    if written < _ROWS_PER_S * took_s / 2:
        raise RuntimeError(f"{written} rows in {took_s:.0f} s: the stream does not keep up")
    cores = {who: round((used - before[who]) / took_s, 3) for who, used in after.items()}
    return {"cores": cores, "seconds": round(took_s)}


def _rows(setting: Setting, topic: str) -> int:
    counted: int = setting.stats(topic)["msgInCounter"]
    return counted
