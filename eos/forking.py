"""Objects with threads and connections belong to the process that made them.

A forked child has neither: its copy of a lock may be held for ever, its copy of a socket is the
parent's, and an answer that it waits for goes to a thread that it does not have. It would hang, or
write into the parent's conversation with the broker.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from functools import wraps
from inspect import iscoroutinefunction
from types import FunctionType
from typing import Any, Final

from eos.errors import UsedAfterFork

_SPECIAL: Final = (
    "__call__", "__enter__", "__aenter__", "__aiter__", "__exit__", "__aexit__"
)  # fmt: skip
_ENDS: Final = ("close", "__exit__", "__aexit__")
"""What a child may call: it leaves everything to the parent."""


class ThisProcess:
    """This process. Asking the system for its number at each call would cost more than the call."""

    def __init__(self) -> None:
        self.look()
        os.register_at_fork(after_in_child=self.look)

    def look(self) -> None:
        """Take the number anew: this is a child."""
        self.pid = os.getpid()

    def refusal(self, of: Any) -> UsedAfterFork:
        """The error for an object that another process has made."""
        return UsedAfterFork(
            f"This {type(of).__name__} was made in process {of.made_in_process}, and is used in "
            f"process {self.pid}, a fork of it."
        )


process: Final = ThisProcess()


def stay_in_process(*kinds: type, leaving: Collection[str] = ()) -> None:
    """Make the public methods of ``kinds`` raise in a forked child, before they touch anything, for
    objects that it has not made itself. Closing does nothing there.

    Args:
        leaving: methods called for each message; they compare ``made_in_process`` themselves, or
            do nothing before they call one that does.
    """
    for kind in kinds:
        kind.__init__ = _noting(kind.__init__)  # type: ignore[misc]
        for name, member in list(vars(kind).items()):
            is_public = name in _SPECIAL or not name.startswith(("_", "on_"))
            if not is_public or name in leaving:
                continue
            if isinstance(member, property) and member.fget is not None:
                setattr(kind, name, property(_guarded(member.fget), doc=member.__doc__))
            elif isinstance(member, FunctionType):
                setattr(kind, name, _guarded(member))


def _noting(init: Callable[..., None]) -> Callable[..., None]:
    @wraps(init)
    def noting(self: Any, *args: Any, **named: Any) -> None:
        self.made_in_process = process.pid
        init(self, *args, **named)

    return noting


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    is_end, is_async = method.__name__ in _ENDS, iscoroutinefunction(method)

    @wraps(method)
    def guarded(self: Any, *args: Any, **named: Any) -> Any:
        if getattr(self, "made_in_process", process.pid) == process.pid:
            return method(self, *args, **named)
        if is_end:
            return _nothing() if is_async else None
        raise process.refusal(self)

    return guarded


async def _nothing() -> None:
    """What a child awaits instead of an end."""
