"""The places that a user gives as text: where to start and where to end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from eos.errors import ConfigurationError
from eos.ids import EntryPlace, TopicName
from eos.sources._offsets import EARLIEST, parse_place
from eos.times import parse_time_ms

LATEST: Final = "latest"

Asked = str | int
"""What is wanted for one partition: ``earliest``, ``latest``, ``ledger:entry``, or a time in ms."""


def asked_places(text: str, names: Iterable[str], option: str) -> dict[str, Asked]:
    """What starting_offsets or ending_offsets asks for: a word for all of ``names``, or JSON by
    topics and exact partitions. A partition's own entry counts more than its topic's; one that is
    not named is not in the result.

    Raises:
        ConfigurationError: it says something else.
    """
    if text in (EARLIEST, LATEST):
        return dict.fromkeys(names, text)
    return _by_partition(_object(text, option, f'"{EARLIEST}", "{LATEST}"'), names, option, _place)


def asked_times(text: str, names: Iterable[str], option: str) -> dict[str, Asked]:
    """The same of starting_time and ending_time: one time, or JSON.

    Raises:
        ConfigurationError: it says something else.
    """
    if not text.startswith("{"):
        return dict.fromkeys(names, _time(text, option))
    return _by_partition(_object(text, option, "a time"), names, option, _time)


def _object(text: str, option: str, other: str) -> Mapping[str, object]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ConfigurationError(f"{option} is neither {other} nor a JSON object: {text[:100]!r}.")
    return value


def _by_partition(
    value: Mapping[str, object],
    names: Iterable[str],
    option: str,
    check: Callable[[object, str], Asked],
) -> dict[str, Asked]:
    asked = {str(TopicName.parse(name)): check(one, option) for name, one in value.items()}
    known = {name: str(TopicName.parse(name).base) for name in names}
    if unknown := sorted(asked.keys() - known.keys() - set(known.values())):
        raise ConfigurationError(
            f"{option} names {unknown[0]!r}, which is not read here.",
            hint=f"Name topics or exact partitions: {', '.join(sorted(known)[:5])}.",
        )
    wanted = {name: asked.get(name, asked.get(base)) for name, base in known.items()}
    return {name: one for name, one in wanted.items() if one is not None}


def _place(value: object, option: str) -> Asked:
    try:
        assert isinstance(value, str)
        if value != LATEST:
            parse_place(value)
    except (AssertionError, ValueError):
        raise ConfigurationError(
            f'{option}: each place is "{EARLIEST}", "{LATEST}" or "ledger:entry", "17:0" for '
            f"example, not {str(value)[:100]!r}."
        ) from None
    return value


def _time(value: object, option: str) -> int:
    try:
        return parse_time_ms(str(value))
    except ValueError as error:
        raise ConfigurationError(f"{option}: {error}") from None


def starting_place(asked: Asked | None) -> EntryPlace | None:
    """The place that needs no question to the broker; ``earliest`` when nothing was asked."""
    assert isinstance(asked, str | None)
    return None if asked is None else parse_place(asked)
