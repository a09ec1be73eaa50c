"""Whether somebody's own folder hides a package of ours: ``sinks``, ``chaos`` are plain names."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import eos
from eos.errors import ConfigurationError


def check_not_hidden(*names: str) -> None:
    """Check that importing each of these packages finds the one that comes with ``eos``.

    Raises:
        ConfigurationError: another one comes first on the path; says where it is.
    """
    ours = Path(eos.__file__).resolve().parent.parent
    for name in names:
        spec = importlib.util.find_spec(name)
        found = None if spec is None or spec.origin is None else Path(spec.origin).resolve()
        if found is not None and not found.is_relative_to(ours / name):
            raise ConfigurationError(
                f"{found} hides the package {name!r} that comes with eos.",
                hint="Rename your own one, or start in another folder.",
            )
