"""The state of all sinks below a root, read from their logs."""

from __future__ import annotations

from rich.progress import track

from eos.admin import AdminClient
from eos.cli.reports import Exit, Facts, exit_of, new_console, worst
from eos.errors import EosError
from eos.ids import TxnId
from eos.recovery._sink_view import SinkView, view
from eos.recovery._target import Target


class BrokenSink(Facts):
    """A sink whose log can't be read."""

    sink_id: str
    error: str
    is_broken: bool  # False: it could not be reached, and may be well


class Survey(Facts):
    """All sinks."""

    commit_log: str
    sinks: list[SinkView]
    broken: list[BrokenSink]
    problems: list[str]  # questions that got no answer

    @property
    def seen(self) -> Exit:
        """The exit code for reading: a broken log needs action; unreachable ones are unknown."""
        return worst(
            Exit.NEEDS_ACTION if any(b.is_broken for b in self.broken) else Exit.CLEAN,
            Exit.UNKNOWN if self.problems or self.broken else Exit.CLEAN,
        )


def survey(target: Target, sink: str | None, *, shows_progress: bool = True) -> Survey:
    """Read the log of one sink, or of all; with an admin URL, ask about unfinished transactions.

    Raises:
        ConfigurationError: there is no such sink, or none at all.
    """
    views: list[SinkView] = []
    broken: list[BrokenSink] = []
    names = target.sinks(sink)
    few = len(names) < 9 or not shows_progress  # a watch has the screen to itself
    for sink_id in track(
        names, "reading", console=new_console(stderr=True), transient=True, disable=few
    ):
        # One log that can't be read must not hide the state of the others.
        try:
            log = target.log(sink_id)
            views.append(view(log.history, log.records()))
        except EosError as error:
            is_broken = exit_of(error) is Exit.NEEDS_ACTION
            broken.append(BrokenSink(sink_id=sink_id, error=str(error), is_broken=is_broken))
    problems: list[str] = []
    admin = target.maybe_admin()
    if admin is not None:
        views = [_with_broker(sink_view, admin, problems) for sink_view in views]
    return Survey(commit_log=target.root, sinks=views, broken=broken, problems=problems)


def _with_broker(sink_view: SinkView, admin: AdminClient, problems: list[str]) -> SinkView:
    asked = []
    for one in sink_view.unfinished:
        if one.txn is None:
            asked.append(one)
            continue
        try:
            found = admin.transaction(TxnId.parse(one.txn))
            # "gone": a coordinator forgets a transaction that has ended.
            asked.append(one.model_copy(update={"at_broker": found.status if found else "gone"}))
        except EosError as error:
            problems.append(f"transaction {one.txn} at the broker: {error}")
            asked.append(one)
    return sink_view.model_copy(update={"unfinished": asked})
