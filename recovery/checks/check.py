"""One check of the doctor: what it looked at, and what it found."""

from __future__ import annotations

from enum import StrEnum

from eos.cli.exit_codes import Exit, exit_of
from eos.cli.reports import Facts
from eos.errors import EosError


class CheckStatus(StrEnum):
    """How a check ended. A warning is for reading; it changes no exit code. Nor does what was not
    checked because nobody asked for it."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"
    NOT_CHECKED = "not checked"


class Check(Facts):
    """``found`` is a fact, ``hint`` what to do about it."""

    name: str
    verdict: CheckStatus
    found: str
    hint: str = ""


def ok(name: str, found: str) -> Check:
    """Nothing to do."""
    return Check(name=name, verdict=CheckStatus.OK, found=found)


def warning(name: str, found: str, hint: str) -> Check:
    """It works, with a risk."""
    return Check(name=name, verdict=CheckStatus.WARNING, found=found, hint=hint)


def failed(name: str, found: str, hint: str) -> Check:
    """It does not work, or loses the guarantee."""
    return Check(name=name, verdict=CheckStatus.FAILED, found=found, hint=hint)


def unknown(name: str, found: str, hint: str = "") -> Check:
    """It could not be looked at."""
    return Check(name=name, verdict=CheckStatus.UNKNOWN, found=found, hint=hint)


def not_checked(name: str, found: str, hint: str = "") -> Check:
    """Nobody asked to look at it, or there is nothing to look at."""
    return Check(name=name, verdict=CheckStatus.NOT_CHECKED, found=found, hint=hint)


def of_error(name: str, error: EosError) -> Check:
    """The check that ended with ``error``."""
    verdict = CheckStatus.UNKNOWN if exit_of(error) is Exit.UNKNOWN else CheckStatus.FAILED
    return Check(name=name, verdict=verdict, found=error.message, hint=error.hint)
