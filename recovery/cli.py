"""``eos recovery``: inspect and repair sinks after a failure."""

from __future__ import annotations

from typing import Final

import typer

from eos.cli.commands import run_program
from eos.recovery._target import verb
from eos.recovery.verbs import log_verbs
from eos.recovery.verbs.blocked_readers import heal, orphans
from eos.recovery.verbs.decide_verb import decide_verb
from eos.recovery.verbs.doctor import doctor
from eos.recovery.verbs.log_verbs import repair
from eos.recovery.verbs.metrics_verb import metrics
from eos.recovery.verbs.show import show
from eos.recovery.verbs.status import status
from eos.recovery.verbs.subscriptions import subscriptions, unsubscribe
from eos.recovery.verbs.unfinished_epochs import abort, resolve_verb
from eos.recovery.verbs.verify import verify

_HELP: Final = """Inspect and repair sinks after a failure. Needs neither Spark nor a JVM.

Start with `status`. Commands that change something (resolve, abort, decide, heal, unsubscribe,
log compact, log repair) only show a plan; add --apply to run it. If neither the log nor the witness
proves an outcome, it is reported as unknown; `decide` records a person's decision.

Options can be set in the environment: EOS_COMMIT_LOG, EOS_SERVICE_URL, EOS_ADMIN_URL,
EOS_TOKEN_FILE (or EOS_TOKEN), EOS_OAUTH2_ISSUER_URL and EOS_OAUTH2_CREDENTIALS_FILE, EOS_BASIC_USER
and EOS_BASIC_PASSWORD (passwords are read from the environment only), EOS_TLS_TRUST_CERTS_FILE.

Exit codes: 0 clean; 1 needs action; 2 unknown: something could not be reached or proved; 64 wrong
options.
"""

app = typer.Typer(
    name="eos recovery",
    help=_HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.command("status")(verb(status))
app.command("show")(verb(show))
app.command("metrics")(verb(metrics))
app.command("resolve")(verb(resolve_verb))
app.command("abort")(verb(abort))
app.command("decide")(verb(decide_verb))
app.command("verify")(verb(verify))
app.command("orphans")(verb(orphans))
app.command("heal")(verb(heal))
app.command("doctor")(verb(doctor))
app.command("subscriptions")(verb(subscriptions))
app.command("unsubscribe")(verb(unsubscribe))
log_verbs.log_app.command("compact")(verb(log_verbs.compact))
log_verbs.log_app.command("export")(verb(log_verbs.export))
log_verbs.log_app.command("repair")(verb(repair))
app.add_typer(log_verbs.log_app, name="log")


def main() -> None:
    """Run the command line; exit codes are those of ``docs/recovery.md``."""
    run_program(app)
