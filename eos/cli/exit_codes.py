"""Exit codes: what a script or a monitor learns from a verb."""

from __future__ import annotations

from enum import IntEnum

from eos.errors import (
    CommitLogUnreadable,
    ConfigurationError,
    EosError,
    Indeterminate,
    ProtocolError,
    Retriable,
    Unauthorized,
)


class Exit(IntEnum):
    """The exit codes of every command line but ``eos broker``; 64 is ``EX_USAGE`` of sysexits.h."""

    CLEAN = 0
    NEEDS_ACTION = 1
    UNKNOWN = 2
    USAGE = 64


def exit_of(error: EosError) -> Exit:
    """The exit code of a verb that ended with ``error``.

    What could not be reached, or not be seen with these permissions, or was answered with what
    nobody understands, is unknown: no news is not good news, and not bad news either.
    """
    if isinstance(error, ConfigurationError):
        return Exit.USAGE
    if isinstance(
        error, Retriable | Indeterminate | Unauthorized | ProtocolError | CommitLogUnreadable
    ):
        return Exit.UNKNOWN
    return Exit.NEEDS_ACTION


def worst(*exits: Exit) -> Exit:
    """The one that a person has to see first: action before unknown before clean."""
    for code in (Exit.USAGE, Exit.NEEDS_ACTION, Exit.UNKNOWN):
        if code in exits:
            return code
    return Exit.CLEAN
