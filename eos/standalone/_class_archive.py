"""The JVM's archive of the broker's classes: a start then costs about half the processor time.

Made once (``eos broker fetch``), by ``class_rehearsal``; the JVM itself checks that the archive
fits and does without it when it does not.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from eos.standalone import maven


def find(java: str, jars: list[Path], version: str) -> Path | None:
    """The archive for this ``java`` and these ``jars`` of Pulsar, when there is one."""
    archive = path_of(java, version)
    try:
        # The JVM refuses an archive of jars that were copied anew since: ours is no use then.
        is_fresh = archive.stat().st_mtime > max(jar.stat().st_mtime for jar in jars)
    except OSError:
        return None
    return archive if is_fresh else None


def path_of(java: str, version: str) -> Path:
    """Where the archive for ``java`` and this Pulsar is, or would be."""
    binary = Path(java).resolve()
    tag = hashlib.sha256(f"{binary}:{binary.stat().st_mtime_ns}".encode()).hexdigest()[:12]
    return maven.cache_dir() / f"pulsar-{version}-classes-{tag}.jsa"
