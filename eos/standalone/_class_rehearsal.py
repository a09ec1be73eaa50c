"""Makes the JVM's archive of the broker's classes: a broker starts, and ends in order."""

from __future__ import annotations

import tempfile
from pathlib import Path

from eos.standalone import _class_archive as class_archive
from eos.standalone import maven
from eos.standalone._broker import PulsarStandalone
from eos.standalone.progress import Progress


def create(java: str, version: str) -> Path | None:
    """Make the archive unless it is there; takes about 15 s. None: this JVM did not write one."""
    jars = maven.pulsar_jars(version)
    archive = class_archive.path_of(java, version)
    with maven.locked(archive.with_suffix(".lock")):
        if found := class_archive.find(java, jars, version):
            return found
        archive.unlink(missing_ok=True)
        with (
            Progress("Archiving the broker's classes for faster starts (once)"),
            tempfile.TemporaryDirectory(prefix=f".{archive.stem}-", dir=archive.parent) as folder,
        ):
            staged = Path(folder, archive.name)
            # A data folder of our own: only then is the broker's end an orderly one.
            with PulsarStandalone(
                Path(folder, "data"),
                jvm_options=[f"-XX:ArchiveClassesAtExit={staged}"],
                pulsar_version=version,
            ):
                pass
            if staged.exists():
                staged.rename(archive)
    return class_archive.find(java, jars, version)
