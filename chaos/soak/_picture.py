"""The picture of a soak: what processes hold, what disks and topics hold, and the faults."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from eos.chaos.soak._gauges import recent_epochs

if TYPE_CHECKING:
    from eos.chaos.soak._run import SoakResult

# Okabe and Ito's palette: told apart with any colour vision.
_COLORS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
_STYLE: Final[Any] = {
    "font.size": 10,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_WHO: Final = (
    ("driver", "driver's Python"),
    ("worker", "largest Python worker"),
    ("jvm", "driver's JVM"),
)
_WHERE: Final = {
    "input": "input topic",
    "log": "commit log",
    "receipts": "receipt topic",
    "checkpoint": "checkpoint",
}


def draw(result: SoakResult, png: Path) -> None:
    """Leave it at ``png``."""
    samples, readings = result.samples, result.readings
    by_sample = [sample.at_s / 60 for sample in samples]
    by_reading = [reading.at_s / 60 for reading in readings]

    def held(what: str) -> dict[str, list[float]]:
        return {name: [getattr(one, f"{key}_{what}") for one in samples] for key, name in _WHO}

    def left(what: str, *keys: str, unit: float = 1) -> dict[str, list[float]]:
        return {
            _WHERE[key]: [getattr(one, f"{key}_{what}") / unit for one in readings] for key in keys
        }

    with matplotlib.rc_context(_STYLE):
        figure, rows = plt.subplots(5, 1, figsize=(9, 11), sharex=True)
        _lines(rows[0], "memory, MB", by_sample, held("mb"))
        _lines(rows[1], "open files", by_sample, held("files"))
        _lines(rows[2], "files", by_reading, left("files", "log", "checkpoint"))
        recent = {"epochs, last ten minutes": [float(n) for n in recent_epochs(readings)]}
        _lines(rows[3], "epochs", by_reading, recent)
        sizes = left("bytes", "input", "log", "receipts", unit=1e6)
        _lines(rows[4], "MB (log scale)", by_reading, sizes)
        rows[4].set_yscale("log")
        rows[4].set_xlabel("minutes; dotted: a fault")
        for axes in rows[:4]:
            axes.set_ylim(bottom=0)
        for axes in rows:
            for one in result.happened:
                at = (one.began_at - result.began_at) / 60
                axes.axvline(at, color="#B30000", linestyle=":", linewidth=0.8)
        figure.suptitle(
            f"{result.plan.rows:,} rows in {result.seconds / 60:.0f} minutes, "
            f"{result.epochs:,} epochs",
            fontsize=11,
        )
        figure.tight_layout()
        figure.savefig(png, dpi=110)
        plt.close(figure)


def _lines(axes: Any, name: str, minutes: list[float], values: dict[str, list[float]]) -> None:
    for color, (label, numbers) in zip(_COLORS, values.items(), strict=False):
        axes.plot(minutes, numbers, color=color, label=label, linewidth=1.2)
    axes.set_ylabel(name)
    axes.legend(frameon=False, fontsize=8, ncol=3)
