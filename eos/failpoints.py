"""Failpoints: a test kills, stops or fails the process after any step of ``eos.steps``.

In the same process: ``armed``. In a child: ``EOS_FAILPOINTS=prepare=kill,open=stop@2`` (``@2``: the
second time; ``kill`` is SIGKILL, ``stop`` SIGSTOP, ``error`` a ``ConnectionError``). With
``EOS_FAILPOINTS_FIRED=FOLDER`` only the first process that reaches the step fires: it leaves a file
named after the step, with its id. Never set either variable in production.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from eos.errors import ConfigurationError
from eos.steps import PLACES, AnyStep

_ENVIRONMENT = "EOS_FAILPOINTS"
_FIRED = "EOS_FAILPOINTS_FIRED"
_SETTING = re.compile(r"(?P<label>[a-z-]+)=(?P<action>kill|stop|error)(@(?P<count>\d+))?")
_actions: dict[AnyStep, Callable[[], None]] = {}


def reached(place: AnyStep) -> None:
    """Report that the process has completed the step ``place``."""
    if _actions and place in _actions:  # almost always one look at an empty dictionary
        _actions[place]()


@contextmanager
def armed(place: AnyStep, action: Callable[[], None]) -> Iterator[None]:
    """Run ``action`` each time ``place`` is reached, while the block runs."""
    _actions[place] = action
    try:
        yield
    finally:
        _actions.pop(place, None)


def _act(label: str, action: str) -> None:
    if not _is_first(label):
        return
    if action == "error":
        raise ConnectionError(f"failpoint {label}")
    os.kill(os.getpid(), signal.SIGKILL if action == "kill" else signal.SIGSTOP)


def _is_first(label: str) -> bool:
    folder = os.environ.get(_FIRED)
    if not folder:
        return True
    try:
        with open(os.path.join(folder, label), "x") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        return False
    return True


def _at(count: int, label: str, action: str) -> Callable[[], None]:
    left = count

    def act() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            _act(label, action)

    return act


def _arm_from_environment(text: str) -> None:
    for part in filter(None, text.split(",")):
        setting = _SETTING.fullmatch(part)
        if setting is None or setting["label"] not in PLACES:
            raise ConfigurationError(
                f"{_ENVIRONMENT}: {part!r} is not PLACE=kill[@N], PLACE=stop[@N] or "
                f"PLACE=error[@N]; places: {', '.join(PLACES)}"
            )
        label = setting["label"]
        _actions[PLACES[label]] = _at(int(setting["count"] or 1), label, setting["action"])


_arm_from_environment(os.environ.get(_ENVIRONMENT, ""))
