"""Plain English: the share of odd words, a private dialect that readers must translate.

The tests count docstrings, comments, error messages and pages. In each folder at most ``LIMIT`` of
1,000 words may be odd; by a similar list h11 has 0.9, httpx 2.6, psycopg 3.4, aiokafka 4.6.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.checkout import ROOT, files

LIMIT: Final = 4.0
"""Odd words in 1,000."""

ODD: Final = (
    # A clause instead of a noun: write "pending items". A question keeps its word.
    r"what(?! to\b)",
    r"whatever|whoever|whichever|wherever",
    # A subject instead of a passive: write "unused".
    r"nobody|somebody|everybody|anybody",
    # Instead of "after" and "next to".
    r"behind",
    r"besides?",
    # After the noun: write "its own log".
    r"of (?:its|their|one's|his|your|our) own",
    r"by (?:itself|themselves)",
    r"anew|once more|for ever|all the same",
    # Inversions and empty verbs: write "is missing" or "is invalid".
    r"(?:is|are|was|were|be) none",
    r"nor|neither",
    r"is to be|are to be",
    r"tells?|told",
    r"stands?|lies?",
    r"go(?:es)? on|looks? (?:on|at)|takes it",
    r"in (?:its|their) place",
    r"is there already",
    # Metaphors.
    r"crowds?|shelf|shelves|parked?|parks|heirs?|strangers?|hand(?:s|ed)? (?:on|over)",
    r"keeps? house|mend(?:s|ed|ing)?|ours",
)
_ODD: Final = re.compile(rf"\b(?:{'|'.join(ODD)})\b", re.IGNORECASE)
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z'-]*")
_CODE: Final = re.compile(r"```.*?```|``[^`]*``|`[^`\n]*`", re.DOTALL)

EOS: Final = tuple(
    f"eos/{path.name}"
    for path in sorted((ROOT / "eos").iterdir())
    if path.is_dir() and not path.is_symlink() and path.name != "__pycache__"
)
ROOMS: Final = (
    *("eos", *EOS, "sinks", "sources", "catalog", "recovery", "chaos", "examples", "bench"),
    "tests",
)
PAGES: Final = tuple(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))
    if path.name != "CHANGELOG.md"
)


def texts_of(path: Path) -> Iterator[str]:
    """Docstrings, comments, and the texts of errors."""
    source = path.read_text()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
        elif isinstance(node, ast.Raise):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def modules_of(room: str) -> list[Path]:
    if room == "eos":  # but not its folders
        return sorted((ROOT / "eos").glob("*.py"))
    return files(room)


def odd_in(texts: Iterator[str]) -> tuple[float, list[str]]:
    """Return the odd words in 1,000, and a list of them."""
    plain = [_CODE.sub(" ", text) for text in texts]
    words = sum(len(_WORD.findall(text)) for text in plain)
    found = [odd for text in plain for odd in _ODD.findall(text)]
    return 1000 * len(found) / max(words, 1), found


def check(name: str, texts: Iterator[str]) -> None:
    share, found = odd_in(texts)
    counts = {word: found.count(word) for word in sorted(set(found), key=found.count)}
    assert share <= LIMIT, f"{name}: {share:.1f} of 1,000 words are odd: {counts}"


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_speak_plain_english(room):
    check(room, (text for path in modules_of(room) for text in texts_of(path)))


@pytest.mark.parametrize("page", PAGES)
def test_pages_speak_plain_english(page):
    check(page, iter([(ROOT / page).read_text()]))
