"""The JVM's archive of the broker's classes: it halves the processor time of a start.

``eos broker fetch`` creates it once. The JVM checks that the archive fits, and starts without it
otherwise.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path

from eos.testing import maven
from eos.testing.progress import Progress


def find(java: str, jars: list[Path], version: str) -> Path | None:
    """Return the archive for this ``java`` and these ``jars`` of Pulsar, if there is one."""
    archive = path_of(java, version)
    try:
        # The JVM refuses an archive that is older than its jars.
        is_fresh = archive.stat().st_mtime > max(jar.stat().st_mtime for jar in jars)
    except OSError:
        return None
    return archive if is_fresh else None


def path_of(java: str, version: str) -> Path:
    """Return the path of the archive for ``java`` and this version, whether it exists or not."""
    binary = Path(java).resolve()
    tag = hashlib.sha256(f"{binary}:{binary.stat().st_mtime_ns}".encode()).hexdigest()[:12]
    return maven.cache_dir() / f"pulsar-{version}-classes-{tag}.jsa"


def create(java: str, version: str, run_broker: Callable[[Path, str], None]) -> Path | None:
    """Create the archive unless it exists, in about 15 s.

    Args:
        run_broker: starts a broker with a data folder and a JVM option, and stops it in order.

    Returns:
        The archive; None if this JVM did not write one.
    """
    jars = maven.pulsar_jars(version)
    archive = path_of(java, version)
    with maven.locked(archive.with_suffix(".lock")):
        if found := find(java, jars, version):
            return found
        archive.unlink(missing_ok=True)
        with (
            Progress("Archiving the broker's classes for faster starts (once)"),
            tempfile.TemporaryDirectory(prefix=f".{archive.stem}-", dir=archive.parent) as folder,
        ):
            staged = Path(folder, archive.name)
            # A broker without a data folder would be killed, and write no archive.
            run_broker(Path(folder, "data"), f"-XX:ArchiveClassesAtExit={staged}")
            if staged.exists():
                staged.rename(archive)
    return find(java, jars, version)
