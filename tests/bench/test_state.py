"""What the benchmark of `KeyedState` counts as wrong."""

from __future__ import annotations

import numpy as np
import pytest

from bench.state import wrong_totals

_EXPECTED = np.array([2, 1])  # key 0 twice, key 1 once


@pytest.mark.parametrize(
    ("sent", "wrong"),
    [
        ([(0, 1), (1, 1), (0, 2)], 0),
        ([(0, 1), (1, 1), (0, 2), (0, 2)], 1),  # one twice
        ([(0, 1), (1, 1)], 1),  # one never
        ([(0, 1), (1, 1), (0, 2), (1, 2)], 1),  # one that counts a message again
        ([(0, 0), (1, 1), (0, 1)], 2),  # one that counts nothing, and one never
        ([(0, 1), (1, 1), (1, 2)], 2),  # one never, and one too many
    ],
)
def test_totals_sent_twice_or_never_are_counted(sent, wrong):
    assert wrong_totals(np.array(sent).T, _EXPECTED) == wrong
