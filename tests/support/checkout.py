"""The checkout: its folders, and copies of it that a test may break."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent.parent
LINKED: Final = ("sinks", "sources", "catalog", "recovery", "chaos")
"""Top-level folders that are imported as parts of ``eos``, by a link in its folder."""
SHIPPED: Final = ("eos", *LINKED, "pyspark_pulsar")
"""Contents of the wheel."""
PRODUCT: Final = (*SHIPPED, "examples", "bench")


def files(*tops: str) -> list[Path]:
    """The modules in these top-level folders, each once: links are not followed."""
    return [path for top in tops for path in sorted((ROOT / top).rglob("*.py"))]


def module_name(path: Path) -> str:
    """The name by which ``path`` is imported, without ``.__init__``."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    name = ".".join(("eos", *parts) if parts[0] in LINKED else parts)
    return name.removesuffix(".__init__")


def copy_checkout(target: Path, names: Iterable[str]) -> None:
    """Copy these files and folders of the checkout into ``target``; links stay links."""
    # With the compiled modules: they are valid for files of the same time and size.
    ignore = shutil.ignore_patterns("*.egg-info")
    for name in names:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, symlinks=True, ignore=ignore)
        else:
            shutil.copy(ROOT / name, target / name)
