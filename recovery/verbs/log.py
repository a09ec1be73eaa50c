"""``eos recovery log``: keep a commit log small, or take a copy of it elsewhere; see ``repair``."""

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

from eos.cli.exit_codes import Exit
from eos.cli.reports import Report, escape
from eos.commit_log import SCHEMA, to_row
from eos.errors import ConfigurationError, EosError
from eos.protocol import LogRecord
from eos.recovery._change import Apply, ChangeProgress, Yes, carry_out
from eos.recovery._report import Plan, PlanStep
from eos.recovery._target import Target

log_app = typer.Typer(
    no_args_is_help=True,
    help="Keep a commit log small, copy it, or mend it: compact, export, repair.",
)


def compact(
    target: Target,
    sink: Annotated[str | None, typer.Argument(help="Only this sink; all by default.")] = None,
    keep_epochs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Keep so many finished epochs in full; what nothing depends on beyond is dropped.",
        ),
    ] = None,
    apply: Apply = False,
    yes: Yes = False,
) -> Report:
    """Compact the logs now: what a driver does by itself every hundred records.

    Drops finished epochs beyond the newest, joins small files, writes a checkpoint. Every batch
    key, the last committed epoch of each query and everything unfinished stay. Takes no claim:
    a driver that is alive goes on meanwhile.

        eos recovery log compact --commit-log /data/eos --apply

    Goes on with the other logs when one can't be compacted now. Exit codes: 0 done, or nothing to
    do; 1 a plan with steps, or a log is broken; 2 a log could not be reached, or somebody else
    compacts it: repeat; 64 wrong options.
    """
    names = target.sinks(sink)
    plan = Plan(
        steps=[
            PlanStep(
                what=f"{name}: drop old finished epochs, join files, write a checkpoint.",
                why="An append and a restart stay as cheap as on the first day.",
            )
            for name in names
        ]
    )

    def do(progress: ChangeProgress) -> None:
        for name in names:
            progress.doing(f"compacting the log of {name}")
            try:
                done = target.writable_log(name).compact(keep_epochs=keep_epochs)
            except EosError as error:  # the others have nothing to do with it
                progress.went_wrong(name, error)
                continue
            progress.done(
                f"{name}: {done.rows_before} rows in {done.files_before} files became "
                f"{done.rows_after} in {done.files_after}"
            )

    return carry_out(target, plan, do, apply=apply, yes=yes)


class ExportReport(Report):
    """What was written where."""

    sink_id: str
    path: str
    records: int

    @property
    def exit(self) -> Exit:
        """Written: clean."""
        return Exit.CLEAN

    def render(self, console: Console) -> None:
        """One line."""
        console.print(f"{self.records} records of {escape(self.sink_id)} in {escape(self.path)}")


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
    to: Annotated[Path, typer.Argument(help="A new file: .parquet, .jsonl or .csv.")],
) -> ExportReport:
    """Copy a sink's records to a file, all columns, in order: for an incident's file, or SQL.

        eos recovery log export orders orders.parquet --commit-log /data/eos

    Exit codes: 0 written; 1 the log is broken; 2 it could not be reached; 64 wrong options, or
    the file exists.
    """
    writer = _WRITERS.get(to.suffix)
    if writer is None:
        raise ConfigurationError(
            f"{to}: which format is {to.suffix or 'that'}?", hint=f"Use {', '.join(_WRITERS)}."
        )
    if to.exists():
        raise ConfigurationError(f"{to} exists.", hint="Name a new file; nothing is overwritten.")
    target.sinks(sink)
    records = target.log(sink).records()
    try:
        writer(records, to)
    except OSError as error:
        raise ConfigurationError(f"{to} can't be written: {error.strerror}.") from None
    return ExportReport(sink_id=sink, path=str(to), records=len(records))
