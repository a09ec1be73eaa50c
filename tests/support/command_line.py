"""A command line as a user has it, in this process."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

_VARIABLES = (
    "COMMIT_LOG", "SERVICE_URL", "ADMIN_URL", "TOKEN", "TOKEN_FILE", "BASIC_USER", "LISTENER_NAME",
    "SUBSCRIPTION_PREFIX",
)  # fmt: skip


@dataclass(frozen=True)
class Ended:
    """One command's ending. ``out`` and ``err``: what it printed, on one line."""

    code: int
    out: str
    err: str
    raw: str

    @property
    def json(self) -> Any:
        """The JSON that it printed, and nothing besides."""
        assert self.raw, self.err
        return json.loads(self.raw)

    @property
    def json_lines(self) -> list[Any]:
        """The same of a program that prints one object in each line."""
        return [json.loads(line) for line in self.raw.splitlines()]


def command_line(
    program: str,
    main: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., Ended]:
    """Runs ``main`` as ``program``; nothing of the environment gets in."""
    for name in _VARIABLES:
        monkeypatch.delenv(f"EOS_{name}", raising=False)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*args: object) -> Ended:
        monkeypatch.setattr(sys, "argv", [program, *map(str, args)])
        capsys.readouterr()
        try:
            with pytest.raises(SystemExit) as caught:
                main()
        finally:
            logging.disable(logging.NOTSET)  # the program's own process ends with it; ours goes on
        printed = capsys.readouterr()
        code = caught.value.code
        assert code is None or isinstance(code, int)
        flat = (" ".join(text.split()) for text in printed)
        return Ended(code or 0, *flat, raw=printed.out)

    return run
