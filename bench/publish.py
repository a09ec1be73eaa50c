"""Where results go: a JSON file, and a section of a page between two marks."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console

OutFolder = Annotated[Path, typer.Option(help="Folder of the results.")]
Page = Annotated[
    Path | None, typer.Option(help="Also replace the section between the marks in this file.")
]
OUT: Final = Path("build/bench")


def progress() -> tuple[Console, Callable[[str], None]]:
    """Return the console, and a function that prints a line with the seconds since now.

    The loggers of eos are set to show errors only.
    """
    console = Console(highlight=False, soft_wrap=True)
    began = time.monotonic()
    logging.getLogger("eos").setLevel(logging.ERROR)

    def tell(text: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:6.0f} s[/]  {text}")

    return console, tell


def publish(results: dict[str, Any], path: Path, text: str = "", page: Path | None = None) -> None:
    """Write ``results`` as JSON to ``path``, and ``text`` to the section of ``page`` that is called
    ``bench-`` and the JSON file's name.

    Raises:
        ValueError: the page has no such section.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=2) + "\n")
    if page is not None:
        put_between(page, text, f"bench-{path.stem}")


def put_between(path: Path, text: str, marker: str) -> None:
    """Replace the text between ``<!-- marker -->`` and ``<!-- /marker -->`` in a file.

    Raises:
        ValueError: the file has no such markers.
    """
    head, tail = split_at(path, marker)
    path.write_text(f"{head}{text}{tail}")


def between(path: Path, marker: str) -> str:
    """Return the text between the markers.

    Raises:
        ValueError: the file has no such markers.
    """
    head, tail = split_at(path, marker)
    return path.read_text()[len(head) : -len(tail)]


def split_at(path: Path, marker: str) -> tuple[str, str]:
    """Return the text before and after the section, the markers included.

    Raises:
        ValueError: the file has no such markers.
    """
    begin, end = f"<!-- {marker} -->\n", f"<!-- /{marker} -->"
    head, found, rest = path.read_text().partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{path} has no {begin.strip()} ... {end}")
    return head + begin, end + tail
