"""Who hears what the broker says about a producer."""

from __future__ import annotations

from typing import Protocol

from eos.errors import EosError
from eos.wire import commands


class ProducerListener(Protocol):
    """What a producer hears from its connection, always from the reading thread."""

    def on_receipt(self, receipt: commands.SendReceipt) -> None: ...
    def on_send_error(self, error: commands.SendError) -> None: ...
    def on_closed(self, reason: EosError) -> None: ...
