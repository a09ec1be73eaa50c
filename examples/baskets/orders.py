"""What the demo tells a program that it started: a word on each line of the standard input."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping


def obey(orders: Mapping[str, Callable[[], None]]) -> None:
    """Do what each word stands for, on a thread; end with the demo, however it ends."""

    def listen() -> None:
        # Not sys.stdin: its lock would be held when the interpreter shuts down.
        with open(os.dup(0)) as lines:
            for line in lines:
                orders[line.strip()]()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=listen, daemon=True).start()
