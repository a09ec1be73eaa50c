"""Acknowledging the receipt topic: not needed for safety, and a debt all the same.

What is not acknowledged stays on the broker's disks, and one old message is enough for a
namespace's time-based backlog quota to refuse producers (measured): so nothing is left when the
sink has nothing to do.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from eos.errors import EosError
from eos.ids import MessageId
from eos.pulsar.receipts import ReceiptTopic

logger = logging.getLogger(__name__)

EVERY_S: Final = 30.0
"""Acknowledging attaches a consumer for a moment; once in a while is enough."""


class Acknowledging:
    """Acknowledges what its owner has sent to ``receipts``, every so often and at last.

    Only behind a transaction's end: everything that was sent until then is decided.
    """

    def __init__(self, receipts: ReceiptTopic) -> None:
        self._receipts = receipts
        self._lock = threading.Lock()
        self._decided: MessageId | None = None
        self._done: MessageId | None = None
        self._done_at = 0.0
        self._timer: threading.Timer | None = None
        self._stopped = False

    def later(self) -> None:
        """Everything sent so far is decided: acknowledge it within ``EVERY_S``."""
        with self._lock:
            self._decided = self._receipts.last_sent
            wait_s = self._done_at + EVERY_S - time.monotonic()
            if wait_s > 0:
                if self._timer is None and not self._stopped:
                    self._timer = threading.Timer(wait_s, self._acknowledge)
                    self._timer.daemon = True
                    self._timer.start()
                return
        self._acknowledge()

    def now(self) -> None:
        """Everything sent so far is decided: acknowledge it."""
        with self._lock:
            self._decided = self._receipts.last_sent
        self._acknowledge()

    def stop(self) -> None:
        """Acknowledge what was promised for later, and do nothing more.

        Whoever drops a sink after each call closes its client while the last epoch is being noted.
        """
        self._acknowledge()
        with self._lock:
            self._stopped = True

    def _acknowledge(self) -> None:
        with self._lock:
            timer, self._timer = self._timer, None
            if timer is not None:
                timer.cancel()
            decided = self._decided
            if self._stopped or decided is None or decided == self._done:
                return
            self._done_at = time.monotonic()
            try:
                self._receipts.acknowledge(decided)
                self._done = decided
            except (EosError, RuntimeError) as error:  # RuntimeError: the interpreter is ending
                logger.warning("the receipt topic is not acknowledged, it keeps growing: %s", error)
