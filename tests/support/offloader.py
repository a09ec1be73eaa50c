"""A broker that moves ledgers to tiered storage: a folder, or S3."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from eos.errors import ConfigurationError
from eos.testing.maven import offloader

_FILE_SYSTEM: Final = "tiered-storage-file-system"
_JCLOUD: Final = "tiered-storage-jcloud"
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
    return _common(folder, _FILE_SYSTEM, entries_per_ledger) | {
        "managedLedgerOffloadDriver": "filesystem",
        "fileSystemURI": f"file:{folder / 'data'}",
        "fileSystemProfilePath": str(folder / "core-site.xml"),
    }


def offloading_to_s3(
    folder: Path, url: str, bucket: str, *, entries_per_ledger: int
) -> dict[str, str]:
    """The same for a bucket of the server at ``url``, whose keys are in the variables
    ``ACCESS_KEY_ID`` and ``ACCESS_KEY_SECRET``. Its blocks have 5 MiB, the least that it allows.
    """
    (folder / "extracted").mkdir(parents=True)
    return _common(folder, _JCLOUD, entries_per_ledger) | {
        "managedLedgerOffloadDriver": "S3",
        "managedLedgerOffloadBucket": bucket,
        "managedLedgerOffloadServiceEndpoint": url,
        "managedLedgerOffloadRegion": "us-east-1",
        "managedLedgerOffloadMaxBlockSizeInBytes": str(5 << 20),
    }


def _common(folder: Path, artifact: str, entries_per_ledger: int) -> dict[str, str]:
    return {
        "offloadersDirectory": str(_archive(artifact).parent),
        "narExtractionDirectory": str(folder / "extracted"),
        "managedLedgerMaxEntriesPerLedger": str(entries_per_ledger),
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    }


def _archive(artifact: str) -> Path:
    try:
        return offloader(artifact)
    except ConfigurationError as error:
        pytest.skip(f"Maven does not give the offloader: {error}")
