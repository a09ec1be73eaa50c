"""Errors replace control characters in text from a peer."""

from __future__ import annotations

import pickle

import pytest

from eos.errors import BROKER_ERRORS, ConnectionLost, EosError, broker_error, printable

ESCAPES = "\x1b[2J\x1b]0;title\x07\x9b31m\u202egnp.exe\r\x00"


@pytest.mark.parametrize("code", [*BROKER_ERRORS, 0, 99])
def test_control_characters_of_a_brokers_text_are_replaced(code):
    error = broker_error(code, f"before{ESCAPES}after", doing="Asking")
    for shown in (str(error), repr(error), str(pickle.loads(pickle.dumps(error)))):
        assert "before" in shown
        assert not set(ESCAPES) & set(shown) - set(printable(ESCAPES))


def test_a_code_without_text_shows_the_class_name():
    error = broker_error(11, " ", doing="Asking")
    assert error.message == "Asking: the broker answered with code 11 (TopicNotFound)."


def test_a_topic_that_was_terminated_while_empty_has_a_way_out():
    """Brokers refuse its subscriptions with code 0 and no text, once it was unloaded (4.2.4)."""
    assert "terminated while it was empty" in str(broker_error(0, "", doing="Subscribing"))
    assert not broker_error(0, "why", doing="Subscribing").hint


def test_message_hint_and_context_of_any_error_are_printable():
    error = ConnectionLost(f"a{ESCAPES}", hint=f"b{ESCAPES}", epoch=f"c{ESCAPES}")
    error.with_context(sink_id=f"d{ESCAPES}")
    assert str(error) == printable(str(error))
    assert error.context["sink_id"].startswith("d")


def test_line_ends_tabs_and_letters_of_any_language_stay():
    text = "Zeile eins\n\tzwei: Grüße, 你好, 🎉"
    assert str(EosError(text)) == text
