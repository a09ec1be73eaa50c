"""Objects with threads and connections raise in a forked child of the process that made them.

It has no copy of the threads: it would hang, or write into the parent's connection.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Collection
from functools import wraps
from inspect import iscoroutinefunction
from types import FunctionType
from typing import Any, Final

from eos.errors import UsedAfterFork

_SPECIAL: Final = (
    "__call__", "__enter__", "__aenter__", "__aiter__", "__exit__", "__aexit__"
)  # fmt: skip
# Methods that a child may call; they do nothing there.
_ENDS: Final = ("close", "__exit__", "__aexit__")


class ThisProcess:
    """The id of this process."""

    # Kept: asking the system at each call would cost more than the call.
    def __init__(self) -> None:
        self.update()
        os.register_at_fork(after_in_child=self.update)

    def update(self) -> None:
        """Read the process id again, in a forked child."""
        self.pid = os.getpid()

    def refusal(self, of: Any) -> UsedAfterFork:
        """Return the error for an object that was made in another process."""
        return UsedAfterFork(
            f"This {type(of).__name__} was made in process {of.made_in_process} and is used in "
            f"process {self.pid}, a fork of it."
        )


process: Final = ThisProcess()


def stay_in_process(*kinds: type, leaving: Collection[str] = ()) -> None:
    """Make the public methods of ``kinds`` raise in a forked child, before they touch anything.

    Objects that the child has made are not affected. Closing does nothing in a child.

    Args:
        leaving: methods that are called for each message; they compare ``made_in_process``
            themselves, or do nothing before they call a method that does.
    """
    for kind in kinds:
        kind.__init__ = _recording(kind.__init__)  # type: ignore[misc]
        for name, member in list(vars(kind).items()):
            is_public = name in _SPECIAL or not name.startswith(("_", "on_"))
            if not is_public or name in leaving:
                continue
            if isinstance(member, property) and member.fget is not None:
                setattr(kind, name, property(_guarded(member.fget), doc=member.__doc__))
            elif isinstance(member, FunctionType):
                setattr(kind, name, _guarded(member))


def _recording(init: Callable[..., None]) -> Callable[..., None]:
    @wraps(init)
    def recording(self: Any, *args: Any, **named: Any) -> None:
        self.made_in_process = process.pid
        init(self, *args, **named)

    return recording


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


_locks: Final[weakref.WeakSet[threading.Lock]] = weakref.WeakSet()


def lock_of_process() -> threading.Lock:
    """Return a lock that is free in a forked child, even if a thread of the parent holds it."""
    made = threading.Lock()
    _locks.add(made)
    return made


def _free_locks() -> None:
    for one in _locks:
        one._at_fork_reinit()  # type: ignore[attr-defined]  # as the standard library does


os.register_at_fork(after_in_child=_free_locks)


async def _nothing() -> None:
    """Awaited in a child instead of a closing method."""
