"""What a cluster's metadata store has to hold before its first broker starts."""

from __future__ import annotations

import time
from typing import Final

from eos.errors import BrokerNotReady, ConfigurationError
from eos.standalone import _settings as settings
from eos.standalone._log_tail import relevant_tail
from eos.standalone._node import Machine
from eos.standalone.jvm import Jvm

COORDINATORS: Final = 4
"""Some for each broker of a small cluster. Pulsar's default is 16."""
_MAIN: Final = "org.apache.pulsar.PulsarClusterMetadataSetup"
_POLL_S: Final = 0.1


def set_up(machine: Machine, metadata_port: int, service_url: str, admin_url: str) -> None:
    """Name the cluster, make its first tenants and its coordinators; what is there stays.

    Raises:
        BrokerNotReady: it took longer than a server may take.
        ConfigurationError: it failed.
    """
    store = settings.metadata_url(metadata_port)
    args = ["--cluster", settings.CLUSTER]
    args += ["--metadata-store", store, "--configuration-metadata-store", store]
    args += ["--web-service-url", admin_url, "--broker-service-url", service_url]
    args += ["--initial-num-transaction-coordinators", str(COORDINATORS)]
    jvm = Jvm(machine.java, machine.version, None, ("-Xms64m", "-Xmx256m"), "metadata-setup")
    try:
        jvm.run(_MAIN, args, {})
        deadline = time.monotonic() + machine.ready_timeout_s
        while (code := jvm.exit_code()) is None:
            if time.monotonic() > deadline:
                raise BrokerNotReady("The cluster's metadata could not be set up in time.")
            time.sleep(_POLL_S)
        if code:
            error = ConfigurationError(f"The setup of the cluster's metadata ended with {code}.")
            error.add_note(f"Its last relevant lines:\n{relevant_tail(jvm.log())}")
            raise error
    finally:
        jvm.close()
