"""The JVM's archive of the broker's classes: a start then costs about half the processor time.

Made once (``eos-broker fetch``) by letting a broker start and end in order; the JVM itself
checks that the archive fits and does without it when it does not.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from eos.standalone import maven


def find(java: str, jars: list[Path]) -> Path | None:
    """The archive for this ``java`` and these ``jars``, when there is one."""
    archive = _path(java)
    try:
        # The JVM refuses an archive of jars that were copied anew since: ours is no use then.
        is_fresh = archive.stat().st_mtime > max(jar.stat().st_mtime for jar in jars)
    except OSError:
        return None
    return archive if is_fresh else None


def create(java: str) -> Path | None:
    """Make the archive unless it is there; takes about 15 s. None: this JVM did not write one."""
    from eos.standalone.broker import PulsarStandalone
    from eos.standalone.progress import Progress

    jars = maven.pulsar_jars()
    archive = _path(java)
    with maven.locked(archive.with_suffix(".lock")):
        if found := find(java, jars):
            return found
        archive.unlink(missing_ok=True)
        with (
            Progress("Archiving the broker's classes for faster starts (once)"),
            tempfile.TemporaryDirectory(prefix=f".{archive.stem}-", dir=archive.parent) as folder,
        ):
            staged = Path(folder, archive.name)
            # A data folder of our own: only then is the broker's end an orderly one.
            with PulsarStandalone(
                Path(folder, "data"), jvm_options=[f"-XX:ArchiveClassesAtExit={staged}"]
            ):
                pass
            if staged.exists():
                staged.rename(archive)
    return find(java, jars)


def _path(java: str) -> Path:
    binary = Path(java).resolve()
    tag = hashlib.sha256(f"{binary}:{binary.stat().st_mtime_ns}".encode()).hexdigest()[:12]
    return maven.cache_dir() / f"pulsar-{maven.PULSAR_VERSION}-classes-{tag}.jsa"
