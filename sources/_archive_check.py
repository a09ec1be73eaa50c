"""What keeps an archive from being made, or from being complete; nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from eos.admin import AdminClient
from eos.delta.opening import open_if_exists
from eos.delta.target_table import TargetTable
from eos.errors import EosError, Retriable
from eos.ids import EntryPlace, TopicName
from eos.sources._archive_places import foreign_changes
from eos.sources._entry_ranges import Contents
from eos.sources._history_files import ELSEWHERE
from eos.sources._offsets import Span, place_text


class Problem(NamedTuple):
    """One state, and what to do about it. ``is_urgent``: archiving fails, or messages get lost."""

    what: str
    hint: str
    is_urgent: bool = True


@contextmanager
def noted(problems: list[Problem]) -> Iterator[None]:
    """Add an error to ``problems``, unless a server or the storage did not answer."""
    try:
        yield
    except Retriable:
        raise
    except EosError as error:
        problems.append(Problem(error.message, error.hint or ""))


def missing_files(table: TargetTable) -> Iterator[Problem]:
    """Find files of the table that are gone, by one listing."""
    opened = open_if_exists(table.folder)
    if opened is None:
        return
    actions = pa.table(opened.get_add_actions(flatten=False))
    with table.folder.failures("listing its files"):
        sizes = table.folder.all_sizes()
    files = zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True)
    gone = sorted(
        path
        for path, size in files
        # Those of a shallow clone are in another folder.
        if not ELSEWHERE.match(path) and sizes.get(unquote(path)) != size
    )
    if gone:
        yield Problem(
            f"{len(gone)} files of the table are missing or damaged, such as {gone[0]}.",
            "Restore them, or RESTORE the table to a version before them: what is still in the "
            "topic is archived again.",
        )


def changed_by_others(table: TargetTable) -> Iterator[Problem]:
    """Name the versions in which something else has changed the table's rows."""
    opened = open_if_exists(table.folder)
    if opened is None:
        return
    for version, operation in foreign_changes(table.folder, opened):
        if operation is None:
            yield Problem(
                f"The table's log begins after version {version}, and has no commit of an archive: "
                "whether the table was restored before can't be seen.",
                "If it was, archive into another table.",
                is_urgent=False,
            )
            return
        yield Problem(
            f"Version {version} of the table changed its rows by {operation}, and is not of an "
            "archive: the table is not exactly the topic's past.",
            f"If that was not intended, RESTORE the table to version {version - 1}: what is still "
            "in the topic is archived again.",
            is_urgent=False,
        )


def waiting(undecided: Mapping[str, EntryPlace]) -> Iterator[Problem]:
    """Name the open transactions that end what can be archived."""
    for name, place in undecided.items():
        yield Problem(
            f"{name}: an open transaction at {place_text(place)} holds back what follows.",
            "It ends at its timeout. Of a job of eos: eos recovery resolve.",
            is_urgent=False,
        )


def unkept(
    admin: AdminClient, places: Mapping[str, EntryPlace | None], subscription: str
) -> Iterator[Problem]:
    """Find partitions whose subscription does not keep what is not archived yet."""
    for name, place in places.items():
        topic = TopicName.parse(name)
        found = {one.name: one for one in admin.subscription_stats(topic)}
        if subscription not in found:
            yield Problem(
                f"{name}: no subscription {subscription} keeps what is not archived yet.",
                "Archive once: that makes it.",
                is_urgent=place is not None,
            )
            continue
        if found[subscription].consumers:
            yield Problem(
                f"{name}: an archive is running.", "Stop it before another one.", is_urgent=False
            )
        # Entries before its position may be deleted at any time, also if they were never read.
        kept = admin.acknowledged(topic, subscription)
        after = None if kept is None else (kept.ledger, kept.entry + 1)
        # At the end of a ledger it moves on to the next one.
        if (
            after is not None
            and after > (place or (0, 0))
            and Contents.of(Span(place, after), admin.ledgers(topic)).entries
        ):
            yield Problem(
                f"{name}: the subscription {subscription} no longer keeps what follows "
                f"{place_text(place)}, but what follows {place_text(after)}.",
                "Somebody moved it, or the table was restored. Archive now: what is deleted until "
                "then is lost.",
            )
