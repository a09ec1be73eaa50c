"""A real Pulsar broker for tests, demos and first steps, on any machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eos.standalone._broker import PulsarStandalone

__all__ = ["PulsarStandalone"]


def __getattr__(name: str) -> Any:
    # Lazy, because the pytest plugin lives here and is imported by every pytest run.
    if name == "PulsarStandalone":
        from eos.standalone._broker import PulsarStandalone

        return PulsarStandalone
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
