"""Acknowledges the receipt topic. Safety does not need it, but the broker's disks do.

Unacknowledged messages stay on disk, and one old message is enough for a namespace's time-based
backlog quota to refuse producers (measured). So an idle sink leaves nothing unacknowledged.
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
"""Acknowledging attaches a consumer for a moment, so it is done only this often."""


class ReceiptAcks:
    """Acknowledges its owner's messages in ``receipts``: now and then, and once at the end.

    Called only after the end of a transaction, when everything sent so far is decided.
    """

    def __init__(self, receipts: ReceiptTopic) -> None:
        self._receipts = receipts
        self._lock = threading.Lock()
        self._decided: MessageId | None = None
        self._done: MessageId | None = None
        self._done_at = 0.0
        self._timer: threading.Timer | None = None
        self._closed = False

    def schedule(self) -> None:
        """Acknowledge everything sent so far within ``EVERY_S``."""
        with self._lock:
            self._decided = self._receipts.last_sent
            wait_s = self._done_at + EVERY_S - time.monotonic()
            if wait_s > 0:
                if self._timer is None and not self._closed:
                    self._timer = threading.Timer(wait_s, self._acknowledge)
                    self._timer.daemon = True
                    self._timer.start()
                return
        self._acknowledge()

    def flush(self) -> None:
        """Acknowledge everything sent so far."""
        with self._lock:
            self._decided = self._receipts.last_sent
        self._acknowledge()

    def close(self) -> None:
        """Run the pending acknowledgement, then do nothing more.

        A sink that is dropped after each call closes its client while the last epoch is finished.
        """
        self._acknowledge()
        with self._lock:
            self._closed = True

    def _acknowledge(self) -> None:
        with self._lock:
            timer, self._timer = self._timer, None
            if timer is not None:
                timer.cancel()
            decided = self._decided
            if self._closed or decided is None or decided == self._done:
                return
            self._done_at = time.monotonic()
            try:
                self._receipts.acknowledge(decided)
                self._done = decided
            except (EosError, RuntimeError) as error:  # RuntimeError: the interpreter is ending
                logger.warning(
                    "The receipt topic could not be acknowledged and keeps growing: %s", error
                )
