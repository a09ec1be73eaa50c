"""A demo's report: the table, the sentences, the verdict. Pure data, for terminal and page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReportLine:
    """A line of the table, with a cell for each column; ``bad`` marks the cells that show harm."""

    label: str
    cells: tuple[str, ...]
    bad: tuple[bool, ...]


@dataclass(frozen=True)
class Conclusion:
    """The verdict of a demo.

    Attributes:
        anomalies: errors of eos, in words.
        unproved: kills without effect, so the demo showed nothing. Both empty: exactly once.
    """

    anomalies: tuple[str, ...]
    unproved: tuple[str, ...]
    success: str

    @property
    def exit_code(self) -> int:
        """0: exactly once; 1: not exactly once; 3: nothing was shown."""
        return 1 if self.anomalies else 3 if self.unproved else 0

    @property
    def sentence(self) -> str:
        """The verdict."""
        if self.anomalies:
            return f"eos failed: {'; '.join(self.anomalies)}."
        if self.unproved:
            return f"Nothing was shown: {'; '.join(self.unproved)}."
        return self.success


@dataclass(frozen=True)
class DemoReport:
    """A demo's whole report.

    Attributes:
        table_title, columns, lines: the table; ``columns`` without the one of the labels.
        evidence: the commit log on the killed epochs, one sentence each, without a full stop.
        code: texts to show as they are, each with its title.
    """

    title: str
    conclusion: Conclusion
    summary: str
    table_title: str
    columns: tuple[str, ...]
    lines: tuple[ReportLine, ...]
    caption: str
    picture_title: str
    picture_caption: str
    evidence: tuple[str, ...] = ()
    code: tuple[tuple[str, str], ...] = ()
