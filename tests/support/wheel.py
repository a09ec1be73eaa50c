"""The wheel, built and installed in an environment that does not see the checkout."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.support.checkout import ROOT

PACKAGES = Path(sysconfig.get_paths()["purelib"])


def build_wheel(folder: Path) -> Path:
    """The built wheel, in ``folder``."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True, capture_output=True, timeout=120)
    (built,) = folder.glob("*.whl")
    return built


def bare_environment(home: Path) -> Path:
    """An environment of the standard library alone; where its packages go."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (site,) = home.glob("lib/python*/site-packages")
    return site


def install(wheel: Path, home: Path) -> None:
    """The wheel alone, without what it depends on, into the environment ``home``."""
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "-q"]
    subprocess.run([*pip, "--no-index", str(wheel)], check=True, timeout=120)


def installed_environment(home: Path, wheel: Path) -> Path:
    """An environment with the wheel in it, and not this checkout; where its programs are.

    The packages that it depends on are those of this environment: they are not loaded again.
    """
    site = bare_environment(home)
    install(wheel, home)
    # Not read recursively: what points to the checkout from there stays behind.
    (site / "dependencies.pth").write_text(str(PACKAGES))
    return home / "bin"


def small_environment(home: Path, names: tuple[str, ...]) -> Path:
    """An environment with these packages of this one and no others; its Python."""
    site = bare_environment(home)
    for name in names:
        for entry in PACKAGES.glob(name):
            (site / entry.name).symlink_to(entry)
    return home / "bin" / "python"
