"""Exit codes of the verbs, for scripts and monitors."""

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
    """The exit codes of all commands but ``eos broker``; 64 is ``EX_USAGE`` of sysexits.h."""

    CLEAN = 0
    NEEDS_ACTION = 1
    UNKNOWN = 2
    USAGE = 64


def exit_of(error: EosError) -> Exit:
    """Return the exit code of a verb that ended with ``error``.

    ``UNKNOWN`` if a server is unreachable, denies access or gives an invalid answer: then the
    state may be good or bad.
    """
    if isinstance(error, ConfigurationError):
        return Exit.USAGE
    if isinstance(
        error, Retriable | Indeterminate | Unauthorized | ProtocolError | CommitLogUnreadable
    ):
        return Exit.UNKNOWN
    return Exit.NEEDS_ACTION


def worst(*exits: Exit) -> Exit:
    """Return the most urgent one: usage, then action, then unknown, then clean."""
    for code in (Exit.USAGE, Exit.NEEDS_ACTION, Exit.UNKNOWN):
        if code in exits:
            return code
    return Exit.CLEAN
