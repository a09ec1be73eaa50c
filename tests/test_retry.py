"""A long wait is told: what it waits for, and for how long."""

from __future__ import annotations

import re

import pytest

from eos import retry
from eos.errors import Retriable


def test_a_long_wait_says_again_and_again_what_it_waits_for(monkeypatch, caplog):
    monkeypatch.setattr(retry, "_SILENT_S", 0.3)

    def ask() -> None:
        raise Retriable("The broker does not answer.")

    with pytest.raises(Retriable):
        retry.attempts(1.5)(ask)
    told = [record.getMessage() for record in caplog.records]
    assert 1 <= len(told) <= 5
    assert all(re.match(r"waiting for \d of 2 s: The broker does not answer", one) for one in told)


def test_a_short_wait_is_silent(caplog):
    failures = iter([Retriable("not yet")])

    def ask() -> str:
        for error in failures:
            raise error
        return "answer"

    assert retry.attempts(5)(ask) == "answer"
    assert not caplog.records
