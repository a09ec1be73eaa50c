"""A program's command line, run in this process as a user would run it."""

from __future__ import annotations

import json
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
    """Result of one command. ``out`` and ``err``: its output, each joined into one line."""

    code: int
    out: str
    err: str
    raw: str

    @property
    def json(self) -> Any:
        """The printed JSON; any other output is an error."""
        assert self.raw, self.err
        return json.loads(self.raw)


def command_line(
    program: str,
    main: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., Ended]:
    """Return a function that runs ``main`` as ``program``, isolated from the environment."""
    for name in _VARIABLES:
        monkeypatch.delenv(f"EOS_{name}", raising=False)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*args: object) -> Ended:
        monkeypatch.setattr(sys, "argv", [program, *map(str, args)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main()
        printed = capsys.readouterr()
        code = caught.value.code
        assert code is None or isinstance(code, int)
        flat = (" ".join(text.split()) for text in printed)
        return Ended(code or 0, *flat, raw=printed.out)

    return run
