"""``eos recovery``: inspect and repair sinks after a failure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup

from eos.cli.commands import run_program
from eos.recovery._target import verb

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

# The module of each verb in ``eos.recovery.verbs``, and its function or its group of verbs.
VERBS: Final = {
    "status": ("status", "status"),
    "show": ("show", "show"),
    "metrics": ("metrics_verb", "metrics"),
    "resolve": ("unfinished_epochs", "resolve_verb"),
    "abort": ("unfinished_epochs", "abort"),
    "decide": ("decide_verb", "decide_verb"),
    "verify": ("verify", "verify"),
    "orphans": ("blocked_readers", "orphans"),
    "heal": ("blocked_readers", "heal"),
    "doctor": ("doctor", "doctor"),
    "subscriptions": ("subscriptions", "subscriptions"),
    "unsubscribe": ("subscriptions", "unsubscribe"),
    "log": ("log_verbs", "log_app"),
}


class _Verbs(Mapping[str, Any]):
    """Typer's commands. A module is imported when its verb is called: ``status`` needs no client,
    which costs 0.2 s."""

    def __getitem__(self, called: str) -> Any:
        module, name = VERBS[called]
        found = getattr(import_module(f"eos.recovery.verbs.{module}"), name)
        if isinstance(found, typer.Typer):
            return typer.main.get_group(found)
        one = typer.Typer(add_completion=False, rich_markup_mode="markdown")
        one.command(called)(verb(found))
        return typer.main.get_command(one)

    def __iter__(self) -> Iterator[str]:
        return iter(VERBS)

    def __len__(self) -> int:
        return len(VERBS)


class _Group(TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Verbs()  # type: ignore[assignment]


app = typer.Typer(
    cls=_Group,
    name="eos recovery",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


@app.callback(help=_HELP)
def _describe() -> None:
    """A group, although no verb is imported yet."""


def main() -> None:
    """Run the command line; exit codes are those of ``docs/recovery.md``."""
    run_program(app)
