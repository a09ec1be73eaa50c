"""docs/options.md has each option of each interface, with its default."""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
import typer.main
from pydantic_core import PydanticUndefined

from eos import Auth, Encryption, PulsarCatalog, PulsarClient
from eos.catalog.cli import app as catalog
from eos.cli.cluster import ACCESS
from eos.recovery.cli import app as recovery
from eos.sinks.options import (
    DeltaSinkOptions,
    IcebergSinkOptions,
    PostgresSinkOptions,
    PulsarSinkOptions,
    WriterOptions,
)
from eos.sinks.options._writer import _NOT_HERE
from eos.sources._source_options import SourceOptions
from tests.support.checkout import ROOT

REQUIRED = "required"
ROW = re.compile(r"^\| ((?:`\w+`(?:, )?)+) \| ([A-Z ]+) \| ([^|]*)\|", re.M)
MIB = 1024 * 1024
AUTH = {one.name: "" for one in fields(Auth)}
MODELS: dict[str, tuple[type[Any], set[str]]] = {
    "S": (PulsarSinkOptions, set()),
    "D": (DeltaSinkOptions, set()),
    "I": (IcebergSinkOptions, set()),
    "Q": (PostgresSinkOptions, set()),
    "W": (WriterOptions, {*_NOT_HERE, "auth", "encryption"}),
    "R": (SourceOptions, {"auth", "encryption"}),
}


def shown(default: Any) -> str:
    """Format a default as on the page."""
    match default:
        case None | ():
            return ""
        case Auth():
            return "`Auth()`"
        case bool():
            return f"`{default}`"
        case int() if default and default % MIB == 0:
            return f"{default // MIB} MiB"
        case int() | float():
            return f"{default:g}"
        case _:
            return f"`{default}`"


def of_model(model: type[Any], left_out: set[str]) -> dict[str, str]:
    return {
        option.alias or name: REQUIRED
        if option.default is PydanticUndefined
        else shown(option.default)
        for name, option in model.model_fields.items()
        if name not in left_out
    }


def of_class(cls: type[Any]) -> dict[str, str]:
    given = inspect.signature(cls).parameters.values()
    return {
        one.name: REQUIRED if one.default is one.empty else shown(one.default)
        for one in given
        if one.name != "spark"  # the session is not an option
    }


def of_command_lines() -> dict[str, str]:
    """Options of all verbs; an option that other interfaces have too has their default."""
    found: dict[str, str] = {}
    for app in (recovery, catalog):
        for command in typer.main.get_command(app).commands.values():  # type: ignore[attr-defined]
            for option in command.params:
                if getattr(option, "rich_help_panel", None) == ACCESS:
                    assert option.name is not None
                    found[option.name] = shown(option.default)
                    assert option.name == "timeout_s" or (
                        option.envvar == f"EOS_{option.name.upper()}"
                    )
    return found


def encryption(letter: str) -> dict[str, str]:
    """What an ``Encryption`` is made of; a function can't be an option that is text."""
    own = {one.name: shown(one.default) for one in fields(Encryption)}
    return {name: text for name, text in own.items() if letter in "SP" or name != "key_reader"}


def faces() -> Iterator[tuple[str, dict[str, str]]]:
    for letter, (model, left_out) in MODELS.items():
        made_of = {} if letter in "DIQ" else AUTH | encryption(letter)
        yield letter, of_model(model, left_out) | made_of
    for letter, cls in (("C", PulsarCatalog), ("P", PulsarClient)):
        yield letter, of_class(cls) | {"auth": shown(Auth())} | AUTH | encryption(letter)


def expected() -> dict[str, dict[str, str]]:
    """Option -> default -> letters of the interfaces that have the option with this default."""
    found: dict[str, dict[str, str]] = defaultdict(lambda: defaultdict(str))
    for letter, options in faces():
        for name, default in options.items():
            found[name][default] += letter
    for name, default in of_command_lines().items():
        default_of_others = next(iter(found[name]), default)
        found[name][default_of_others] += "T"
    return {name: dict(one) for name, one in found.items()}


def in_the_page() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for names, letters, default in ROW.findall((ROOT / "docs" / "options.md").read_text()):
        for name in re.findall(r"\w+", names):
            assert default.strip() not in found[name], name
            found[name][default.strip()] = letters.replace(" ", "")
    return dict(found)


def test_each_option_is_in_the_page_with_its_faces_and_default():
    assert in_the_page() == expected()


@pytest.mark.parametrize(
    "name", ["EOS_TOKEN", "EOS_BASIC_PASSWORD", "EOS_TLS_PRIVATE_KEY_PASSWORD"]
)
def test_secrets_of_the_command_lines_are_variables_only(name):
    assert f"T: only as `{name}`" in (ROOT / "docs" / "options.md").read_text()
