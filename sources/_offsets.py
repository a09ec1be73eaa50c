"""A query's offsets: how far it has read in each partition, as kept in Spark's checkpoint."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self, TypeVar

from eos.errors import ConfigurationError
from eos.ids import EntryPlace, MessageId, TopicName
from eos.user_input import parse_time_ms

VERSION: Final = 1
# Version of the offsets of a query that began with a history; older releases refuse it.
WITH_HISTORY: Final = 2
WITH_LEFT: Final = 3  # Version of offsets that have topics in `left`; older releases refuse it.
EARLIEST: Final = "earliest"

_PLACE: Final = re.compile(r"(0|[1-9][0-9]{0,18}):(0|[1-9][0-9]{0,18})")
_MAX_LONG: Final = 2**63 - 1


@dataclass(frozen=True)
class Span:
    """The entries of one partition in one epoch: from ``start``, up to but without ``end``.

    None is the place before the first entry. A place may have no entry.
    """

    start: EntryPlace | None
    end: EntryPlace | None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Parse the form in checkpoints; any error if it is invalid, or goes backwards."""
        start, end = parse_place(value["from"]), parse_place(value["to"])
        assert start is None or (end is not None and start <= end)
        return cls(start, end)

    @property
    def is_empty(self) -> bool:
        """Whether it has no entries."""
        return self.end is None or self.end == self.start

    @property
    def first(self) -> MessageId | None:
        """The first place in it; None: where the partition begins."""
        return None if self.start is None else MessageId(*self.start)

    @property
    def last(self) -> MessageId:
        """The last place in it."""
        assert self.end is not None
        return MessageId(self.end[0], self.end[1] - 1)


@dataclass(frozen=True)
class HistorySpan:
    """The files of one epoch, of one version of a table with the topics' history.

    They are the files from ``first``, up to but without ``last``, of ``count``.

    Attributes:
        table: its folder or URL. ``table_id``: Delta's id, which changes if a table is recreated.
        topics: full names, sorted, of the topics that the query read when it began.
        digest: of the names of all files, to recognise the version. Empty in checkpoints of older
            releases.
        partial: partition -> the place of an entry of which the table has only the first messages,
            and how many.
    """

    # Until all files are read, the topics' places are those where the history ends. Topics that the
    # query reads since then are read without history.

    table: str
    table_id: str
    version: int
    first: int
    last: int
    count: int
    topics: tuple[str, ...] = ()
    partial: Mapping[str, tuple[EntryPlace, int]] = field(default_factory=dict)
    digest: str = ""

    @property
    def is_done(self) -> bool:
        """Whether it has the last file."""
        return self.last == self.count

    @property
    def is_empty(self) -> bool:
        """Whether the epoch has no files."""
        return self.first == self.last

    def followed_by(self, last: int) -> HistorySpan:
        """Return the span of the next epoch."""
        return replace(self, first=self.last, last=last)

    def to_json(self) -> dict[str, Any]:
        """Return the form in checkpoints."""
        partial = {
            name: {"at": place_text(place), "messages": count}
            for name, (place, count) in sorted(self.partial.items())
        }
        named = {"digest": self.digest} if self.digest else {}
        return {
            **named,
            "files": self.count,
            "from": self.first,
            "partial": partial,
            "table": self.table,
            "tableId": self.table_id,
            "to": self.last,
            "topics": list(self.topics),
            "version": self.version,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Parse the result of ``to_json``; any error if it is invalid."""
        partial = {}
        for name, one in value["partial"].items():
            place = parse_place(one["at"])
            assert place is not None
            partial[str(name)] = place, _whole(one["messages"])
        first, last, count = (_whole(value[name]) for name in ("from", "to", "files"))
        assert first <= last <= count
        return cls(
            table=str(value["table"]),
            table_id=str(value["tableId"]),
            version=_whole(value["version"]),
            first=first,
            last=last,
            count=count,
            topics=tuple(str(name) for name in value["topics"]),
            partial=partial,
            digest=str(value.get("digest", "")),
        )


def _whole(value: object) -> int:
    # In a checkpoint that others have written it may be 1e400.
    assert type(value) is int
    assert 0 <= value <= _MAX_LONG
    return value


Ends = dict[str, EntryPlace | None]
"""The place after the last entry of each partition; None: it has none."""


def place_after(last: MessageId | None) -> EntryPlace | None:
    """Return the place after the entry ``last``; None for an empty partition."""
    return None if last is None else (last.ledger, last.entry + 1)


def place_text(place: EntryPlace | None) -> str:
    """Return the form of a place in options and checkpoints; the inverse of ``parse_place``."""
    return EARLIEST if place is None else f"{place[0]}:{place[1]}"


def parse_place(text: str) -> EntryPlace | None:
    """Parse ``earliest`` or ``ledger:entry``; ValueError if the text is something else."""
    if text == EARLIEST:
        return None
    match = _PLACE.fullmatch(text)
    if match is None or max(place := (int(match[1]), int(match[2]))) > _MAX_LONG:
        raise ValueError(text)
    return place


@dataclass(frozen=True)
class Offset:
    """The spans of one epoch, by the exact names of partitions, and the query's subscription.

    ``left``: where the query stopped in partitions that it no longer reads. ``keeps_left``: all of
    them are in it; older releases did not keep them.

    ``to_json`` and ``from_json`` are inverse. Equal offsets have equal texts, which Spark compares:
    names are sorted.
    """

    # It has the end of its epoch, and also the beginning: Spark asks for the initial offset again
    # when it replays the first epoch, and "latest" is another place then (measured). So an epoch is
    # read from its end offset alone, and a replayed epoch reads exactly the same entries.

    spans: Mapping[str, Span]
    subscription: str | None = None
    history: HistorySpan | None = None
    left: Mapping[str, EntryPlace | None] = field(default_factory=dict)
    keeps_left: bool = False

    @classmethod
    def starting(
        cls,
        places: Mapping[str, EntryPlace | None],
        subscription: str | None = None,
        history: HistorySpan | None = None,
    ) -> Self:
        """Return the offset of an empty epoch, which ends where the first epoch begins."""
        spans = {name: Span(place, place) for name, place in places.items()}
        return cls(spans, subscription, history)

    @property
    def ends(self) -> dict[str, EntryPlace | None]:
        """The place in each partition at the end of the epoch."""
        return {name: span.end for name, span in self.spans.items()}

    def followed_by(
        self,
        starts: Mapping[str, EntryPlace | None],
        ends: Mapping[str, EntryPlace | None],
        left: Mapping[str, EntryPlace | None] | None = None,
    ) -> Offset:
        """Return the offset of an epoch from ``starts`` to ``ends``; itself if that is empty.

        It has the partitions of ``starts``. A partition without an end, or with an end before its
        start, stays at its start.
        """
        spans = {}
        for name, start in sorted(starts.items()):
            end = ends.get(name)
            is_ahead = end is not None and (start is None or end > start)
            spans[name] = Span(start, end if is_ahead else start)
        is_new = any(not span.is_empty for span in spans.values())
        if not is_new:
            return self
        done = self.history and self.history.followed_by(self.history.last)
        return replace(self, spans=spans, history=done, left=left or {})

    def to_json(self) -> dict[str, Any]:
        """Return the form in checkpoints."""
        spans = {
            # With its start too: an epoch that runs again must read the same.
            name: {"from": place_text(span.start), "to": place_text(span.end)}
            for name, span in sorted(self.spans.items())
        }
        named = {} if self.subscription is None else {"subscription": self.subscription}
        # The lowest version that can hold it: older releases refuse higher ones.
        version: int = VERSION
        more: dict[str, Any] = {"keepsLeft": True} if self.keeps_left else {}
        if self.history is not None:
            version, more = WITH_HISTORY, {"history": self.history.to_json(), **more}
        if self.left:
            places = {name: place_text(place) for name, place in sorted(self.left.items())}
            version, more = WITH_LEFT, {**more, "left": places}
        return {**more, "partitions": spans, **named, "version": version}

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Parse the result of ``to_json``; ConfigurationError if it is no offset of this source."""
        try:
            assert isinstance(value, dict)
            version = value["version"]
            assert version in (VERSION, WITH_HISTORY, WITH_LEFT)
            past = value["history"] if version == WITH_HISTORY else None
            if version == WITH_LEFT:
                past = value.get("history")
            history = None if past is None else HistorySpan.from_json(past)
            places = value["left"] if version == WITH_LEFT else {}
            left = {str(name): parse_place(place) for name, place in places.items()}
            keeps_left = value.get("keepsLeft", False)
            assert isinstance(keeps_left, bool)
            subscription = value.get("subscription")
            assert isinstance(subscription, str | None)
            spans = {str(name): Span.from_json(span) for name, span in value["partitions"].items()}
        except (AssertionError, AttributeError, KeyError, TypeError, ValueError):
            raise ConfigurationError(
                f"The checkpoint has an invalid offset: {str(value)[:200]}",
                hint="Check whether another source or a newer version of eos made the checkpoint.",
            ) from None
        return cls(spans, subscription, history, left, keeps_left)


LATEST: Final = "latest"

# For one partition: `earliest`, `latest`, `ledger:entry`, or a time in milliseconds.
PlaceOption = str | int
P = TypeVar("P", bound=PlaceOption)


def parse_offsets(text: str, names: Iterable[str], option: str) -> dict[str, PlaceOption]:
    """Parse starting_offsets or ending_offsets: a word for all of ``names``, or JSON by topics and
    exact partitions. Partitions without an entry are not in the result. ConfigurationError if the
    text is invalid.
    """
    if text in (EARLIEST, LATEST):
        return dict.fromkeys(names, text)
    return _by_partition(_object(text, option, f'"{EARLIEST}", "{LATEST}"'), names, option, _place)


def check_order(starts: Mapping[str, PlaceOption], ends: Mapping[str, PlaceOption]) -> None:
    """Raise ConfigurationError if the start of a partition is after its end; ``latest`` is not."""

    def ordered(one: PlaceOption) -> EntryPlace:
        return (one, 0) if isinstance(one, int) else parse_place(one) or (0, 0)

    for name in sorted(starts.keys() & ends.keys()):
        start, end = starts[name], ends[name]
        if LATEST not in (start, end) and ordered(start) > ordered(end):
            raise ConfigurationError(f"{name}: the start, {start}, is after the end, {end}.")


def parse_times(text: str, names: Iterable[str], option: str) -> dict[str, int]:
    """Parse starting_time or ending_time: one time, or JSON; errors as of ``parse_offsets``."""
    if not text.startswith("{"):
        return dict.fromkeys(names, _time(text, option))
    return _by_partition(_object(text, option, "a time"), names, option, _time)


def _object(text: str, option: str, other: str) -> Mapping[str, object]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ConfigurationError(f"{option} must be {other} or a JSON object, not {text[:100]!r}.")
    return value


def _by_partition(
    value: Mapping[str, object],
    names: Iterable[str],
    option: str,
    check: Callable[[object, str], P],
) -> dict[str, P]:
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
