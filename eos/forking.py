"""Objects with threads and connections belong to the process that made them.

A forked child has neither: its copy of a lock may be held for ever, its copy of a socket is the
parent's, and an answer that it waits for goes to a thread that it does not have. It would hang, or
write into the parent's conversation with the broker.
"""

from __future__ import annotations

import os
from collections.abc import Callable
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

_HOME: Final = "_made_in_process"


def stay_in_process(*kinds: type) -> None:
    """Make the public methods of ``kinds`` raise in a forked child, before they touch anything.

    Closing does nothing there.
    """
    for kind in kinds:
        kind.__init__ = _noting(kind.__init__)  # type: ignore[misc]
        for name, member in list(vars(kind).items()):
            if name.startswith(("_", "on_")) and name not in _SPECIAL:
                continue
            if isinstance(member, property) and member.fget is not None:
                setattr(kind, name, property(_guarded(member.fget), doc=member.__doc__))
            elif isinstance(member, FunctionType):
                setattr(kind, name, _guarded(member))


def _noting(init: Callable[..., None]) -> Callable[..., None]:
    @wraps(init)
    def noting(self: Any, *args: Any, **named: Any) -> None:
        setattr(self, _HOME, _here.pid)
        init(self, *args, **named)

    return noting


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    is_end, is_async = method.__name__ in _ENDS, iscoroutinefunction(method)

    @wraps(method)
    def guarded(self: Any, *args: Any, **named: Any) -> Any:
        home = getattr(self, _HOME, _here.pid)
        if home == _here.pid:
            return method(self, *args, **named)
        if is_end:
            return _nothing() if is_async else None
        raise UsedAfterFork(
            f"This {type(self).__name__} was made in process {home}, and is used in process "
            f"{_here.pid}, a fork of it."
        )

    return guarded


async def _nothing() -> None:
    """What a child awaits instead of an end."""


class _Here:
    """This process' number; asking the system at each call would be most of what it costs."""

    def __init__(self) -> None:
        self.look()
        os.register_at_fork(after_in_child=self.look)

    def look(self) -> None:
        self.pid = os.getpid()


_here: Final = _Here()
