"""The answers that any request may get."""

from __future__ import annotations

from eos.wire.messages import Message, field


class Success(Message):
    request_id: int = field(1, "uint64")


class Error(Message):
    request_id: int = field(1, "uint64")
    error: int = field(2, "int32")
    message: str = field(3, "string", default="")
