"""The figures of the table, and whether the demo has shown what it claims."""

from __future__ import annotations

from dataclasses import dataclass

from eos.protocol import State
from examples.baskets.judge import BasketVerdict, OutputVerdict
from examples.baskets.run import VICTIMS, BasketsRun


@dataclass(frozen=True)
class BasketsConclusion:
    """``anomalies``: what is wrong. ``unproved``: kills that did not happen, so that nothing was
    shown. Both empty: exactly-once."""

    anomalies: tuple[str, ...]
    unproved: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """0 exactly-once; 1 it is not; 3 nothing was shown."""
        return 1 if self.anomalies else 3 if self.unproved else 0

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        if self.anomalies:
            return f"eos failed: {'; '.join(self.anomalies)}."
        if self.unproved:
            return f"Nothing was shown: {'; '.join(self.unproved)}."
        return "eos: every window once in topic and table, with the right count, under all kills."


def conclude_baskets(run: BasketsRun, verdict: BasketVerdict) -> BasketsConclusion:
    """Judge a run: what came out, and whether everything was killed that should be."""
    unproved = [f"no {what} was killed" for what in VICTIMS if run.strike(what) is None]
    if not verdict.copies:
        unproved.append("no basket was sent twice")
    if not run.aborted:
        unproved.append("no transaction of the producer was aborted")
    return BasketsConclusion(verdict.anomalies, tuple(unproved))


def figures(run: BasketsRun, verdict: BasketVerdict) -> list[tuple[str, str]]:
    """The table's lines: a label, and what there is to say."""
    again = f", {run.again} sent again" if run.again else ""
    lines = [
        ("baskets in the data set", f"{len(run.year.baskets):,}"),
        ("messages in the input topic", f"{verdict.messages:,}"),
        ("of them copies of baskets", f"{verdict.copies:,}"),
        ("the producer's transactions", f"{run.aborted} aborted{again}"),
        ("of the aborted ones readable", f"{verdict.strangers:,}"),
        ("windows: a shop on a day", f"{verdict.windows:,}"),
        ("rows in the output topic", _rows(verdict.topic)),
        ("rows in the Delta table", _rows(verdict.table)),
        ("rows that are in one of them only", f"{verdict.differing:,}"),
        ("rows dropped as late", f"{run.late:,}"),
        ("epochs committed, attempts aborted", _epochs(run)),
        ("lives of the driver", _lives(run)),
    ]
    for strike in run.strikes:
        seconds = run.next_commit_s(strike)
        waited = "none" if seconds is None else f"{seconds:.1f} s"
        lines.append((f"{strike.what} killed, until the next commit", waited))
    lines.append(("first epoch to last", f"{run.ended_at - run.began_at:.0f} s"))
    return lines


def _rows(output: OutputVerdict) -> str:
    return (
        f"{output.rows:,}: {output.extra:,} extra, {output.missing:,} missing, "
        f"{output.wrong:,} wrong"
    )


def _epochs(run: BasketsRun) -> str:
    return f"{run.in_state(State.COMMITTED)}, {run.in_state(State.ABORTED)}"


def _lives(run: BasketsRun) -> str:
    lives = sum(event.event == "started" for event in run.events)
    return f"{lives}, {run.unplanned} of them ended by an error of the query"
