"""``eos recovery log``: compact, export or repair a commit log."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import pyarrow as pa
import pyarrow.parquet
import typer
from rich.console import Console

from eos.cli.reports import Exit, Report, counted, escape, unwritable
from eos.commit_log import SCHEMA, RepairableDamage, examine, repair_log, to_row
from eos.errors import CommitLogError, CommitLogUnreadable, ConfigurationError, EosError
from eos.protocol import LogRecord
from eos.recovery._change import Apply, ChangeProgress, Plan, PlanStep, Yes, carry_out
from eos.recovery._target import Target, verb

log_app = typer.Typer(
    name="log",
    no_args_is_help=True,
    help="Compact, export or repair a commit log.",
)


def compact(
    target: Target,
    sink: Annotated[str | None, typer.Argument(help="Only this sink; all by default.")] = None,
    keep_epochs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of finished epochs to keep; older ones that nothing depends on are "
            "dropped.",
        ),
    ] = None,
    apply: Apply = False,
    yes: Yes = False,
) -> Report:
    """Compact the logs now. A driver does this automatically every hundred records.

    Drops old finished epochs, joins small files and writes a checkpoint. Keeps every batch key, the
    last committed epoch of each query and all unfinished epochs. Does not take the claim: a running
    driver is not disturbed.

        eos recovery log compact --commit-log /data/eos --apply

    If one log can't be compacted, continues with the others.

    Exit codes: 0 done, or nothing to do; 1 a plan with steps, or a log is broken; 2 a log could not
    be reached, or another process is compacting it (retry); 64 wrong options.
    """
    names = target.sinks(sink)
    plan = Plan(
        steps=[
            PlanStep(
                what=f"{name}: drop old finished epochs, join small files, write a checkpoint.",
                why="Keeps appends and restarts fast.",
            )
            for name in names
        ]
    )

    def do(progress: ChangeProgress) -> None:
        for name in names:
            progress.doing(f"compacting the log of {name}")
            try:
                done = target.writable_log(name).compact(keep_epochs=keep_epochs)
            except EosError as error:  # the other logs can still be compacted
                progress.failed(name, error)
                continue
            rows, found = counted(done.rows_before, "row"), counted(done.files_before, "file")
            progress.done(
                f"{name}: {rows} in {found} compacted to "
                f"{done.rows_after:,} in {done.files_after:,}"
            )

    return carry_out(target, plan, do, apply=apply, yes=yes)


class ExportReport(Report):
    """The file that was written."""

    sink_id: str
    path: str
    records: int

    @property
    def exit(self) -> Exit:
        """Always clean."""
        return Exit.CLEAN  # errors are raised

    def render(self, console: Console) -> None:
        """One line."""
        console.print(
            f"{self.records} records of {escape(self.sink_id)} written to {escape(self.path)}"
        )


def _write_parquet(records: list[LogRecord], path: Path) -> None:
    rows = [to_row(record) for record in records]
    with path.open("wb") as file:
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), file)


def _write_json_lines(records: list[LogRecord], path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for record in records:
            print(json.dumps(to_row(record), default=str), file=file)


def _write_csv(records: list[LogRecord], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, SCHEMA.names)
        writer.writeheader()
        for record in records:
            # Python's own text of a list is read by no other program.
            writer.writerow(
                {
                    name: json.dumps(value, default=str) if isinstance(value, list) else value
                    for name, value in to_row(record).items()
                }
            )


_WRITERS: Final[dict[str, Callable[[list[LogRecord], Path], None]]] = {
    ".parquet": _write_parquet,
    ".jsonl": _write_json_lines,
    ".csv": _write_csv,
}


def export(
    target: Target,
    sink: Annotated[str, typer.Argument(help="The sink.")],
    to: Annotated[Path, typer.Argument(help="New file, ending in .parquet, .jsonl or .csv.")],
) -> ExportReport:
    """Copy all records of a sink to a file, with all columns, in order.

        eos recovery log export orders orders.parquet --commit-log /data/eos

    Exit codes: 0 written; 1 the log is broken; 2 it could not be reached, or the disk is full; 64
    wrong options, or the file already exists.
    """
    writer = _WRITERS.get(to.suffix)
    if writer is None:
        raise ConfigurationError(
            f"{to} must end in {', '.join(list(_WRITERS)[:-1])} or {list(_WRITERS)[-1]}.",
            hint="The ending selects the format.",
        )
    if to.exists():
        raise ConfigurationError(
            f"{to} already exists.", hint="Choose a new file; nothing is overwritten."
        )
    target.sinks(sink)
    records = target.log(sink).records()
    try:
        to.touch(exist_ok=False)  # a file that has appeared meanwhile is not overwritten
        try:
            writer(records, to)
        except BaseException:
            to.unlink(missing_ok=True)  # half a file looks like a whole one
            raise
    except OSError as error:
        raise unwritable(f"{to} can't be written", error) from None
    return ExportReport(sink_id=sink, path=str(to), records=len(records))


def repair(
    target: Target,
    sink: Annotated[str, typer.Argument(help="The sink.")],
    apply: Apply = False,
    yes: Yes = False,
) -> Report:
    """Repair a log that Delta can't open, or that holds duplicate records.

    Repairs only damage that leaves the content of the log beyond doubt:

    - Duplicate records, equal in every column, are written once. Two simultaneous compactions, by
      an older release or by hand, leave them.

    - A missing or broken checkpoint is removed if every commit is intact.

    - Empty newest commits are replaced by commits that do nothing. A power failure leaves them, and
      nothing has depended on them.

    Other damage is reported and nothing is changed: restore the folder from a copy made after the
    last driver stopped. Does not take the claim: a running driver continues.

        eos recovery log repair orders --commit-log /data/eos            # show what is wrong
        eos recovery log repair orders --commit-log /data/eos --apply    # repair it

    Exit codes: 0 nothing to repair, or repaired; 1 a plan with steps, or refused; 2 the log could
    not be reached, or another process is compacting it (retry); 64 wrong options.
    """
    target.sinks(sink)
    try:
        found = examine(target.root, sink, storage_options=target.storage_options)
    except CommitLogUnreadable:
        raise  # unknown, not refused
    except CommitLogError as error:
        return Plan(steps=[], refused=[str(error)])

    def do(progress: ChangeProgress) -> None:
        progress.doing(f"repairing the log of {sink}")
        try:
            repaired = repair_log(target.root, sink, storage_options=target.storage_options)
        except EosError as error:
            progress.failed(sink, error)
            return
        # What was repaired, not what the plan found: both look at the log of their own moment.
        for step in _steps(sink, repaired):
            progress.done(step.what)

    return carry_out(target, Plan(steps=_steps(sink, found)), do, apply=apply, yes=yes)


def _steps(sink: str, found: RepairableDamage) -> list[PlanStep]:
    steps = []
    if found.lost_checkpoint is not None:
        steps.append(
            PlanStep(
                what=f"{sink}: delete _last_checkpoint and {found.lost_checkpoint}.",
                why="The checkpoint is missing or broken, but every commit is there: Delta reads "
                "the log without it. Further damage is then looked for.",
            )
        )
    steps.extend(
        PlanStep(
            what=f"{sink}: replace the empty {name} by a commit that does nothing.",
            why="A power failure leaves an empty commit. A writer continues only once its commit "
            "is on disk, so nothing depends on this one. If the file was emptied in another way, "
            "its content is lost: restore a copy instead. Further damage is then looked for.",
        )
        for name in found.unwritten
    )
    if found.doubled:
        steps.append(
            PlanStep(
                what=f"{sink}: write {found.doubled} duplicate records once.",
                why="The duplicates are equal in every column: no decision changes.",
            )
        )
    return steps


for _name, _function in (("compact", compact), ("export", export), ("repair", repair)):
    log_app.command(_name)(verb(_function))
