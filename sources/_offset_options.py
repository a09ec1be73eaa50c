"""Parses the options that say where a query starts and ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from eos.errors import ConfigurationError
from eos.ids import EntryPlace, TopicName
from eos.sources._offsets import EARLIEST, parse_place
from eos.times import parse_time_ms

LATEST: Final = "latest"

PlaceOption = str | int
"""For one partition: ``earliest``, ``latest``, ``ledger:entry``, or a time in milliseconds."""


def parse_offsets(text: str, names: Iterable[str], option: str) -> dict[str, PlaceOption]:
    """Parse starting_offsets or ending_offsets: a word for all of ``names``, or JSON by topics and
    exact partitions. A partition's own entry overrides its topic's; partitions without an entry are
    not in the result.

    Raises:
        ConfigurationError: the text is invalid.
    """
    if text in (EARLIEST, LATEST):
        return dict.fromkeys(names, text)
    return _by_partition(_object(text, option, f'"{EARLIEST}", "{LATEST}"'), names, option, _place)


def parse_times(text: str, names: Iterable[str], option: str) -> dict[str, PlaceOption]:
    """Parse starting_time or ending_time: one time, or JSON.

    Raises:
        ConfigurationError: the text is invalid.
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
        raise ConfigurationError(f"{option} must be {other} or a JSON object, not {text[:100]!r}.")
    return value


def _by_partition(
    value: Mapping[str, object],
    names: Iterable[str],
    option: str,
    check: Callable[[object, str], PlaceOption],
) -> dict[str, PlaceOption]:
    given = {str(TopicName.parse(name)): check(one, option) for name, one in value.items()}
    known = {name: str(TopicName.parse(name).base) for name in names}
    if unknown := sorted(given.keys() - known.keys() - set(known.values())):
        raise ConfigurationError(
            f"{option} names {unknown[0]!r}, which the query does not read.",
            hint=f"Name topics or exact partitions: {', '.join(sorted(known)[:5])}.",
        )
    wanted = {name: given.get(name, given.get(base)) for name, base in known.items()}
    return {name: one for name, one in wanted.items() if one is not None}


def _place(value: object, option: str) -> PlaceOption:
    try:
        assert isinstance(value, str)
        if value != LATEST:
            parse_place(value)
    except (AssertionError, ValueError):
        raise ConfigurationError(
            f'{option}: each place must be "{EARLIEST}", "{LATEST}" or "ledger:entry", such as '
            f'"17:0", not {str(value)[:100]!r}.'
        ) from None
    return value


def _time(value: object, option: str) -> int:
    try:
        return parse_time_ms(str(value))
    except ValueError as error:
        raise ConfigurationError(f"{option}: {error}") from None


def starting_place(position: PlaceOption | None) -> EntryPlace | None:
    """Return the place of a position that needs no lookup; None means ``earliest``."""
    assert isinstance(position, str | None)
    return None if position is None else parse_place(position)
