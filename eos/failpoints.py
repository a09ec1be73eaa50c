"""Places where a test lets the process die, stop or fail: one behind each commit step.

Off, a failpoint costs one look at an empty dictionary. Tests and the chaos harness switch them on
in the process itself with ``armed``, or in a child with ``EOS_FAILPOINTS=prepare=kill,open=stop@2``
(``@2``: the second time; ``kill`` is SIGKILL of the process, ``stop`` SIGSTOP: it sleeps until
somebody sends SIGCONT). Never set it in production.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from eos.errors import ConfigurationError
from eos.steps import Step

_ENVIRONMENT = "EOS_FAILPOINTS"
_actions: dict[Step, Callable[[], None]] = {}


def reached(step: Step) -> None:
    """The process has done ``step``."""
    if _actions and step in _actions:
        _actions[step]()


@contextmanager
def armed(step: Step, action: Callable[[], None]) -> Iterator[None]:
    """Run ``action`` each time ``step`` has been done, while the block runs."""
    _actions[step] = action
    try:
        yield
    finally:
        _actions.pop(step, None)


_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


def _send_itself(name: str) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), _SIGNALS[name])


def _at(count: int, action: Callable[[], None]) -> Callable[[], None]:
    left = count

    def act() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            action()

    return act


def _arm_from_environment(text: str) -> None:
    for part in filter(None, text.split(",")):
        name, _, rest = part.partition("=")
        action, _, count = rest.partition("@")
        is_known = name.upper() in Step.__members__ and action in _SIGNALS
        if not is_known or not (count or "1").isdigit():
            raise ConfigurationError(
                f"{_ENVIRONMENT}: {part!r} is not STEP=kill[@N] or STEP=stop[@N]; steps: "
                + ", ".join(step.name.lower() for step in Step)
            )
        _actions[Step[name.upper()]] = _at(int(count or 1), _send_itself(action))


_arm_from_environment(os.environ.get(_ENVIRONMENT, ""))
