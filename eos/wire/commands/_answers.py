"""The answers that any request may get."""

from __future__ import annotations

from eos.wire.messages import WireMessage, field


class Success(WireMessage):
    request_id: int = field(1, "uint64")


class Error(WireMessage):
    request_id: int = field(1, "uint64")
    error: int = field(2, "int32")
    message: str = field(3, "string", default="")
