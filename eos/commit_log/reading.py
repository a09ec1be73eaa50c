"""From the table's rows to the history: every rule is checked again on what was read."""

from __future__ import annotations

from eos.commit_log.schema import NewerRecord, from_row
from eos.commit_log.table import LogTable
from eos.errors import CommitLogError
from eos.transaction import History, LogRecord


def read_history(table: LogTable) -> tuple[History, list[LogRecord]]:
    """Everything that the table holds, in the order of ``seq``.

    Raises:
        CommitLogError: a file is broken or missing, or a record breaks a rule or was written by
            a newer release; names the file.
    """
    history, records = History(table.sink_id), []
    for row in table.read():
        seq = row["seq"]
        try:
            record = from_row(row)
            history.append(record)
        except NewerRecord as error:
            raise CommitLogError(
                f"commit log {table.location.uri}: seq {seq} in {table.file_of(seq)}: {error}.",
                hint="Use the release of eos that wrote it, or a later one.",
                sink_id=table.sink_id,
            ) from None
        except ValueError as error:
            raise table.broken(f"seq {seq} in {table.file_of(seq)}: {error}") from None
        except CommitLogError as error:
            text = f"{error.message.rstrip('.')}; the record is in {table.file_of(seq)}"
            raise table.broken(text).with_context(**error.context) from None
        records.append(record)
    return history, records
