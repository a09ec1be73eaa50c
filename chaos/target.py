"""What faults act on: one run's broker, proxy, driver and topics."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from chaos.job import Job
from chaos.proxy import FaultProxy
from chaos.supervisor import Supervisor
from eos.standalone import PulsarStandalone


@dataclass
class Target:
    """Everything that can be broken in one run.

    ``topics`` are the exact names of the job's partitions; ``broker_back_at`` when the broker
    was ready again after each of its deaths (``time.time()``).
    """

    broker: PulsarStandalone
    proxy: FaultProxy
    supervisor: Supervisor
    job: Job
    topics: list[str]
    broker_back_at: list[float] = field(default_factory=list)

    def heal_broker(self) -> None:
        """Start the broker again when it is dead; returns when it is ready."""
        if not self.broker.is_running():
            self.broker.restart()
            self.broker_back_at.append(time.time())

    def admin(self, method: str, path: str) -> Any:
        """One call of the admin API, by plain HTTP; the parsed answer, None for an empty one.

        Raises:
            OSError: it was refused, or not answered.
        """
        url = f"{self.broker.admin_url}/admin{path}"
        request = urllib.request.Request(url, method=method)  # noqa: S310 - our own broker
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
            text = response.read()
        return json.loads(text) if text else None

    def recovery(self, *args: str, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        """``eos-recovery`` with these arguments, past the proxy, as a process of its own."""
        return subprocess.run(
            [
                *(sys.executable, "-m", "recovery", *args),
                *("--commit-log", self.job.commit_log),
                *("--service-url", self.broker.service_url),
                *("--admin-url", self.broker.admin_url),
            ],
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
