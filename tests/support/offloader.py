"""A broker that moves ledgers to tiered storage: a folder, or S3."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from eos import testing
from eos.errors import ConfigurationError
from eos.testing.maven import offloader

_FILE_SYSTEM: Final = "tiered-storage-file-system"
_HADOOP: Final = """\
<configuration>
  <property><name>fs.defaultFS</name><value></value></property>
  <property><name>hadoop.tmp.dir</name><value>pulsar</value></property>
  <property><name>io.file.buffer.size</name><value>4096</value></property>
  <property><name>io.seqfile.compress.blocksize</name><value>1000000</value></property>
  <property><name>io.seqfile.compression.type</name><value>BLOCK</value></property>
  <property><name>io.map.index.interval</name><value>128</value></property>
</configuration>
"""


def offloading(folder: Path, *, entries_per_ledger: int) -> dict[str, str]:
    """Settings of a broker that can offload to ``folder``.

    Skip the test if the offloader is unavailable.
    """
    for name in ("data", "extracted"):
        (folder / name).mkdir(parents=True)
    (folder / "core-site.xml").write_text(_HADOOP)
    with _skipping():
        archive = offloader(_FILE_SYSTEM)
    return testing.rolling(entries_per_ledger) | {
        "offloadersDirectory": str(archive.parent),
        "narExtractionDirectory": str(folder / "extracted"),
        "managedLedgerOffloadDriver": "filesystem",
        "fileSystemURI": f"file:{folder / 'data'}",
        "fileSystemProfilePath": str(folder / "core-site.xml"),
    }


def offloading_to_s3(
    folder: Path, url: str, bucket: str, *, entries_per_ledger: int
) -> dict[str, str]:
    """The same for a bucket of the server at ``url``; see ``eos.testing.offloading_to_s3``."""
    with _skipping():
        return testing.offloading_to_s3(url, bucket, folder) | testing.rolling(entries_per_ledger)


@contextmanager
def _skipping() -> Iterator[None]:
    try:
        yield
    except ConfigurationError as error:
        pytest.skip(f"Maven does not give the offloader: {error}")
