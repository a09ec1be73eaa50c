"""The wheel, built and installed in an environment without the checkout on its path."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.checkout import ROOT

# Of this environment: its own packages, and those that make compat-spark takes from another one.
PACKAGES = [Path(entry) for entry in sys.path if Path(entry).name == "site-packages"]


def build_wheel(folder: Path) -> Path:
    """Build the wheel in ``folder``; return its path."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True, capture_output=True, timeout=120)
    (built,) = folder.glob("*.whl")
    return built


def bare_environment(home: Path) -> Path:
    """Create an environment with only the standard library; return its packages folder."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (site,) = home.glob("lib/python*/site-packages")
    return site


def install(wheel: Path, home: Path) -> None:
    """Install the wheel, without its dependencies, into the environment ``home``."""
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "-q"]
    subprocess.run([*pip, "--no-index", str(wheel)], check=True, timeout=120)


def installed_environment(home: Path, wheel: Path) -> Path:
    """Create an environment with the wheel, without this checkout; return its programs folder.

    Its dependencies are this environment's packages: they are not downloaded again.
    """
    site = bare_environment(home)
    install(wheel, home)
    # .pth files are not read recursively: those there that point to the checkout have no effect.
    (site / "dependencies.pth").write_text("\n".join(map(str, PACKAGES)))
    return home / "bin"


def small_environment(home: Path, names: tuple[str, ...]) -> Path:
    """Create an environment with only these packages of this one; return its Python."""
    site = bare_environment(home)
    for name in names:
        # The first one counts, as in an import.
        for entry in [entry for folder in reversed(PACKAGES) for entry in folder.glob(name)]:
            (site / entry.name).unlink(missing_ok=True)
            (site / entry.name).symlink_to(entry)
    return home / "bin" / "python"
