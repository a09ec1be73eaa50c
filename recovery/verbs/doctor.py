"""``eos recovery doctor``: check everything that exactly-once depends on."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from eos.cli.reports import Exit, Report, escape, table_of, worst
from eos.pulsar.part import pulsar_part
from eos.recovery._target import Target
from eos.recovery.checks.brokers import check_cluster
from eos.recovery.checks.local import check_logs, check_outputs, check_spark
from eos.recovery.checks.namespace import check_receipt_topics, receipt_topics
from eos.recovery.checks.result import Check, CheckStatus
from eos.recovery.checks.topic_settings import check_data_topics, check_rates

_COLOURS = {
    CheckStatus.OK: "green",
    CheckStatus.WARNING: "yellow",
    CheckStatus.FAILED: "red",
    CheckStatus.UNKNOWN: "yellow",
    CheckStatus.NOT_CHECKED: "dim",
}


class DoctorReport(Report):
    """All checks with their results."""

    checks: list[Check]

    @property
    def exit(self) -> Exit:
        """Failed checks need action."""
        verdicts = {check.verdict for check in self.checks}
        return worst(
            Exit.NEEDS_ACTION if CheckStatus.FAILED in verdicts else Exit.CLEAN,
            Exit.UNKNOWN if CheckStatus.UNKNOWN in verdicts else Exit.CLEAN,
        )

    def render(self, console: Console) -> None:
        """A row for each check, with a hint below it."""
        table = table_of("check", "", "found")
        for check in self.checks:
            colour = _COLOURS[check.verdict]
            found = escape(check.found)
            if check.hint:
                found += f"\n[dim]{escape(check.hint)}[/]"
            table.add_row(escape(check.name), f"[{colour}]{check.verdict.value}[/]", found)
        console.print(table)


def doctor(
    target: Target,
    sink: Annotated[str | None, typer.Argument(help="Only this sink; all by default.")] = None,
    spark_conf: Annotated[
        str | None,
        typer.Option(
            envvar="SPARK_CONF_DIR",
            help="Folder with spark-defaults.conf. Without it, Spark's settings are not checked.",
        ),
    ] = None,
) -> DoctorReport:
    """Check everything that exactly-once depends on: broker, coordinators, logs, receipts, Spark.

    Also checks whether the messages of the sinks' topics are kept. Connects, reads settings, and
    writes and removes one small file below --commit-log. With --admin-url, it checks more.

        eos recovery doctor --commit-log /data/eos --admin-url http://broker:8080

    Exit codes: 0 no check failed (warnings are possible); 1 a check failed; 2 something could not
    be checked; 64 wrong options.
    """
    admin = target.maybe_admin()
    checks, histories = check_logs(target, sink)
    checks += check_outputs(target, histories)
    records = [history.last for history in histories if history.last is not None]
    with_topic = [record for record in records if pulsar_part(record).receipt_topic]
    # Sinks that only write tables need no broker.
    if with_topic or not records or target.service_url or admin:
        checks += check_cluster(target, admin, with_topic)
        checks += check_receipt_topics(admin, receipt_topics(histories))
        checks += check_data_topics(target, admin, with_topic)
        checks += check_rates(target, admin, with_topic)
    checks.append(check_spark(spark_conf))
    return DoctorReport(checks=checks)
