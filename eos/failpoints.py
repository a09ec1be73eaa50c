"""Places where a test lets the process die, stop or fail: one behind each step of ``eos.steps``.

Off, a failpoint costs one look at an empty dictionary. Tests and the chaos harness switch them on
in the process itself with ``armed``, or in a child with ``EOS_FAILPOINTS=prepare=kill,open=stop@2``
(``@2``: the second time; ``kill`` is SIGKILL of the process, ``stop`` SIGSTOP: it sleeps until
somebody sends SIGCONT; ``error`` raises ``ConnectionError``). ``EOS_FAILPOINTS_FIRED`` names a
folder: whoever acts leaves a file there with the place's name and its process id, and of all
processes only the first one does. Never set either in production.
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
    """The process has done what ``place`` stands for."""
    if _actions and place in _actions:
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
