"""Spans that are split by entries: no entry is missing or in two parts."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from eos.admin import Ledger
from eos.ids import EntryPlace
from eos.sources._entry_ranges import Contents, limited, shares
from eos.sources._offsets import Span


@st.composite
def spans(draw: st.DrawFn) -> tuple[Span, list[Ledger], list[EntryPlace]]:
    """Generate a span, its partition's ledgers, and the places of its entries."""
    ids = sorted(draw(st.sets(st.integers(1, 30), min_size=1, max_size=5)))
    ledgers = [Ledger(one, draw(st.integers(1, 9)), 100) for one in ids]
    entries = [(one.id, entry) for one in ledgers for entry in range(one.entries)]
    start = draw(st.sampled_from(entries))
    last = draw(st.sampled_from(entries[entries.index(start) :]))
    inside = [entry for entry in entries if start <= entry <= last]
    return Span(start, (last[0], last[1] + 1)), ledgers, inside


@given(spans(), st.integers(1, 12))
def test_parts_cover_the_span_and_have_about_equal_lengths(
    drawn: tuple[Span, list[Ledger], list[EntryPlace]], parts: int
) -> None:
    span, ledgers, entries = drawn
    contents = Contents.of(span, ledgers)
    assert contents.entries == len(entries)
    split = contents.split(parts)
    assert (split[0].start, split[-1].end) == (span.start, span.end)
    assert all(one.end == other.start for one, other in pairwise(split))
    sizes = [sum(_covers(one, entry) for entry in entries) for one in split]
    assert sum(sizes) == len(entries)
    assert len(split) == min(parts, len(entries))
    assert max(sizes) - min(sizes) <= 1


def _covers(span: Span, entry: EntryPlace) -> bool:
    assert span.start is not None
    assert span.end is not None
    return span.start <= entry < span.end


@given(spans(), st.integers(0, 60))
def test_a_cut_has_the_first_entries(
    drawn: tuple[Span, list[Ledger], list[EntryPlace]], count: int
) -> None:
    span, ledgers, entries = drawn
    end = Contents.of(span, ledgers).cut(count)
    cut = Span(span.start, end)
    assert [entry for entry in entries if _covers(cut, entry)] == entries[:count]


def test_a_limit_leaves_each_partition_at_least_an_entry():
    ledgers = [Ledger(1, 1000, 1000)]
    contents = {
        "large": Contents.of(Span((1, 0), (1, 1000)), ledgers),
        "small": Contents.of(Span((1, 0), (1, 2)), ledgers),
    }
    assert limited(contents, 0.01) == {"large": (1, 10), "small": (1, 1)}
    assert limited(contents, 1.0) == {"large": (1, 1000), "small": (1, 2)}


def test_tasks_are_divided_by_bytes():
    contents = {
        name: Contents.of(Span((1, 0), (1, 10)), [Ledger(1, 10, size)])
        for name, size in (("a", 3000), ("b", 1000), ("c", 0))
    }
    assert shares(contents, 8) == {"a": 6, "b": 2, "c": 1}
    assert contents["a"].bytes == 3000


def test_entries_after_the_listed_ledgers_end_are_counted():
    # The ledger that is written to: the list may be older than the end of the span.
    contents = Contents.of(Span((1, 2), (1, 9)), [Ledger(1, 4, 400)])
    assert contents.entries == 7
