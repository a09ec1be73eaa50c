"""Broker, bookie and metadata store in one JVM, as Pulsar's standalone mode has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from eos.standalone import _settings as settings
from eos.standalone.jvm import Jvm

_MAIN: Final = "org.apache.pulsar.PulsarStandaloneStarter"
_PICKS_A_FREE_PORT: Final = 5
"""From this version on the bookie finds a port by itself, and the option is unknown (measured)."""


class StandaloneJvm(Jvm):
    """All of a small Pulsar in one process."""

    def start(self, values: Mapping[str, str], ports: list[int]) -> None:
        """Start it with the settings ``values``; it is not ready yet."""
        del ports  # Ours are the machine's own.
        args = ["--config", str(self.conf), "--no-functions-worker", "--no-stream-storage"]
        args += ["--metadata-dir", str(self.data_dir / "metadata")]
        args += ["--bookkeeper-dir", str(self.data_dir / "bookkeeper")]
        if int(self.version.partition(".")[0]) < _PICKS_A_FREE_PORT:
            args += ["--bookkeeper-port", str(settings.free_port(set()))]
        self.run(_MAIN, args, values)
