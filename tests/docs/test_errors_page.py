"""docs/errors.md has every error that users can get."""

from __future__ import annotations

import re

import eos.errors
from tests.support.checkout import ROOT

PAGE = (ROOT / "docs" / "errors.md").read_text()


def test_each_error_is_in_the_page():
    errors = {
        name
        for name, cls in vars(eos.errors).items()
        if isinstance(cls, type) and issubclass(cls, eos.errors.EosError)
    }
    assert errors <= set(re.findall(r"\b[A-Z]\w+\b", PAGE)), errors
