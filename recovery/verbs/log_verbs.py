"""``eos recovery log``: compact or export a commit log; see also ``repair``."""

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

from eos.cli.reports import Exit, Report, escape
from eos.commit_log import SCHEMA, to_row
from eos.errors import ConfigurationError, EosError
from eos.protocol import LogRecord
from eos.recovery._change import Apply, ChangeProgress, Yes, carry_out
from eos.recovery._plan import Plan, PlanStep
from eos.recovery._target import Target

log_app = typer.Typer(
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
            progress.done(
                f"{name}: {done.rows_before} rows in {done.files_before} files compacted to "
                f"{done.rows_after} in {done.files_after}"
            )

    return carry_out(target, plan, do, apply=apply, yes=yes)


class ExportReport(Report):
    """The file that was written."""

    sink_id: str
    path: str
    records: int

    @property
    def exit(self) -> Exit:
        """Always clean: errors are raised."""
        return Exit.CLEAN

    def render(self, console: Console) -> None:
        """One line."""
        console.print(
            f"{self.records} records of {escape(self.sink_id)} written to {escape(self.path)}"
        )


def _write_parquet(records: list[LogRecord], path: Path) -> None:
    rows = [to_row(record) for record in records]
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path)


def _write_json_lines(records: list[LogRecord], path: Path) -> None:
    with path.open("x", encoding="utf-8") as file:
        for record in records:
            print(json.dumps(to_row(record), default=str), file=file)


def _write_csv(records: list[LogRecord], path: Path) -> None:
    with path.open("x", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, SCHEMA.names)
        writer.writeheader()
        for record in records:
            row = to_row(record)
            writer.writerow({**row, "partitions": json.dumps(row["partitions"], default=str)})


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

    Exit codes: 0 written; 1 the log is broken; 2 it could not be reached; 64 wrong options, or the
    file already exists.
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
        writer(records, to)
    except OSError as error:
        raise ConfigurationError(f"{to} can't be written: {error.strerror}.") from None
    return ExportReport(sink_id=sink, path=str(to), records=len(records))
