"""The result of one check of the doctor."""

from __future__ import annotations

from enum import StrEnum

from eos.cli.reports import Exit, Facts, exit_of
from eos.errors import EosError


class CheckStatus(StrEnum):
    """The status of a check."""

    OK = "ok"
    WARNING = "warning"  # a risk: the exit code stays
    FAILED = "failed"
    UNKNOWN = "unknown"
    NOT_CHECKED = "not checked"  # not requested: the exit code stays


class Check(Facts):
    """The result of one check."""

    name: str
    verdict: CheckStatus
    found: str  # a fact
    hint: str = ""  # the remedy


def ok(name: str, found: str) -> Check:
    """A check that passed."""
    return Check(name=name, verdict=CheckStatus.OK, found=found)


def warning(name: str, found: str, hint: str) -> Check:
    """A check that found a risk."""
    return Check(name=name, verdict=CheckStatus.WARNING, found=found, hint=hint)


def failed(name: str, found: str, hint: str) -> Check:
    """A check that found something broken, or a lost guarantee."""
    return Check(name=name, verdict=CheckStatus.FAILED, found=found, hint=hint)


def unknown(name: str, found: str, hint: str = "") -> Check:
    """A check that could not be made."""
    return Check(name=name, verdict=CheckStatus.UNKNOWN, found=found, hint=hint)


def not_checked(name: str, found: str, hint: str = "") -> Check:
    """A check that was not requested, or has nothing to check."""
    return Check(name=name, verdict=CheckStatus.NOT_CHECKED, found=found, hint=hint)


def of_error(name: str, error: EosError) -> Check:
    """A check that raised ``error``."""
    verdict = CheckStatus.UNKNOWN if exit_of(error) is Exit.UNKNOWN else CheckStatus.FAILED
    return Check(name=name, verdict=verdict, found=error.message, hint=error.hint)
