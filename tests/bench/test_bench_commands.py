"""Each benchmark is a command of ``python -m bench``."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from bench.__main__ import COMMANDS, main
from tests.support.checkout import ROOT


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"python -m bench {name}" in capsys.readouterr().out


def test_every_target_of_make_is_a_command():
    called = re.findall(r"-m bench (\S+)", (ROOT / "Makefile").read_text())
    assert {"compare", "log", "hostile-broker"} <= set(called) <= set(COMMANDS)


def test_an_unknown_command_shows_the_known_ones(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["nothing"])
    assert ended.value.code == 2
    shown = capsys.readouterr().out
    assert all(name in shown for name, (_, text) in COMMANDS.items() if text)


def test_a_command_is_a_function_of_its_module():
    for name, (module, _) in COMMANDS.items():
        assert callable(getattr(import_module(module), name.replace("-", "_")))
