"""Where a query stands in each partition of its topics, as Spark's checkpoint keeps it.

An offset says where its epoch ends, and where it begins as well: Spark asks for the initial offset
again when it replays the first epoch, and "latest" is elsewhere by then (measured). So an epoch is
read from its end offset alone, and a replayed one reads exactly the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from eos.errors import ConfigurationError
from eos.ids import EntryPlace, MessageId

VERSION: Final = 1
EARLIEST: Final = "earliest"

_PLACE: Final = re.compile(r"(0|[1-9][0-9]{0,18}):(0|[1-9][0-9]{0,18})")


@dataclass(frozen=True)
class Span:
    """The entries of one partition in one epoch: from ``start`` on, up to before ``end``.

    None is before the first entry that there is. A place need not be one of an entry.
    """

    start: EntryPlace | None
    end: EntryPlace | None

    @property
    def is_empty(self) -> bool:
        """Whether it has no place for an entry."""
        return self.end is None or self.end == self.start

    @property
    def first(self) -> MessageId | None:
        """The first place in it; None: wherever the partition begins."""
        return None if self.start is None else MessageId(*self.start)

    @property
    def last(self) -> MessageId:
        """The last place in it."""
        assert self.end is not None
        return MessageId(self.end[0], self.end[1] - 1)


def behind(last: MessageId | None) -> EntryPlace | None:
    """The place behind the entry ``last``; None is an empty partition."""
    return None if last is None else (last.ledger, last.entry + 1)


@dataclass(frozen=True)
class Offset:
    """The spans of one epoch, by the exact names of partitions.

    ``to_json`` and ``from_json`` are inverse. Equal offsets are equal texts, as Spark compares
    them so: names are sorted.
    """

    spans: Mapping[str, Span]

    @classmethod
    def starting(cls, places: Mapping[str, EntryPlace | None]) -> Self:
        """Of an epoch without entries, that ends where the first one begins."""
        return cls({name: Span(place, place) for name, place in places.items()})

    def followed_by(self, ends: Mapping[str, EntryPlace | None]) -> Offset:
        """The offset of the next epoch, up to ``ends``; itself if that would have no entries.

        A partition that is new here begins with its first entry; one that is not in ``ends`` stays
        where it is. Nothing goes back.
        """
        spans = {}
        for name in sorted(self.spans.keys() | ends.keys()):
            start = self.spans[name].end if name in self.spans else None
            end = ends.get(name)
            is_ahead = end is not None and (start is None or end > start)
            spans[name] = Span(start, end if is_ahead else start)
        following = Offset(spans)
        is_new = any(not span.is_empty for span in spans.values())
        return following if is_new else self

    def to_json(self) -> dict[str, Any]:
        """As Spark keeps it."""
        spans = {
            name: {"from": _text(span.start), "to": _text(span.end)}
            for name, span in sorted(self.spans.items())
        }
        return {"partitions": spans, "version": VERSION}

    @classmethod
    def from_json(cls, value: object) -> Self:
        """The inverse.

        Raises:
            ConfigurationError: it is no offset of this source.
        """
        try:
            assert isinstance(value, dict)
            assert value["version"] == VERSION
            spans = {
                str(name): Span(_place(span["from"]), _place(span["to"]))
                for name, span in value["partitions"].items()
            }
        except (AssertionError, AttributeError, KeyError, TypeError, ValueError):
            raise ConfigurationError(
                f"The checkpoint holds an offset that is none of this source: {str(value)[:200]}",
                hint="Was the checkpoint made by another source, or by a newer version of eos?",
            ) from None
        return cls(spans)


def _text(place: EntryPlace | None) -> str:
    return EARLIEST if place is None else f"{place[0]}:{place[1]}"


def _place(text: str) -> EntryPlace | None:
    if text == EARLIEST:
        return None
    match = _PLACE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return int(match[1]), int(match[2])


def json_object(text: str, option: str) -> object:
    """The JSON in an option.

    Raises:
        ConfigurationError: it is none.
    """
    try:
        return json.loads(text)
    except ValueError:
        raise ConfigurationError(
            f'{option} is neither "earliest" nor "latest" nor JSON: {text[:100]!r}.'
        ) from None


def places_of(value: object, names: Iterable[str], option: str) -> dict[str, EntryPlace | None]:
    """Places that a user gave for partitions, by their exact names: ``earliest`` or
    ``ledger:entry``.

    Raises:
        ConfigurationError: it is something else, or names other partitions than ``names``.
    """
    if not isinstance(value, dict):
        raise ConfigurationError(f"{option}: a JSON object was expected.")
    known = set(names)
    if unknown := sorted(str(name) for name in value.keys() - known):
        raise ConfigurationError(
            f"{option} names {unknown[0]!r}, which is not read here.",
            hint=f"Name exact partitions: {', '.join(sorted(known)[:5])}.",
        )
    try:
        return {str(name): _place(text) for name, text in value.items()}
    except (TypeError, ValueError):
        raise ConfigurationError(
            f'{option}: each place is "earliest" or "ledger:entry", "17:0" for example.'
        ) from None
