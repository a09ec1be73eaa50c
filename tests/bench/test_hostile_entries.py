"""Hostile entries are decoded in bounded memory, and errors name the entry."""

from __future__ import annotations

import pytest

from bench.hostile_entries import BOUND_MIB, run_apart

REFUSED = "ProtocolError: The entry 7:0:-1:-1 can't be read"


@pytest.mark.parametrize(
    ("name", "rows", "error"),
    [
        ("zeros, malformed, zstd", 0, REFUSED),
        ("no bytes, 2^31 - 1 messages", 0, REFUSED),
        ("5 MiB each, 450 times", 450, ""),
        ("one large message each, 3 times", 3, ""),
        ("2 million empty messages", 2_000_000, ""),
        ("a million messages, the last one malformed", 0, REFUSED),
        ("a large message in another order of fields", 1, ""),
        ("16 million booleans in a value", 1, ""),
        ("30 million booleans in a value", 0, "InputError: The field 'a[]' has more items"),
        ("2 million empty messages in a Protobuf value", 0, "InputError: The value has more than"),
    ],
)
def test_memory_is_bounded(name: str, rows: int, error: str) -> None:
    outcome = run_apart(name)
    assert (outcome.rows, outcome.error[: len(error) or None]) == (rows, error)
    assert outcome.mib < BOUND_MIB
