"""When a broker is ready: healthy, with a namespace to write to and a coordinator that answers."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from eos.errors import BrokerNotReady

_POLL_S = 0.1
_HTTP_TIMEOUT_S = 5.0
_ASSIGN = "pulsar/system/transaction_coordinator_assign"


@dataclass(frozen=True)
class Probe:
    """Asks one broker over its admin port. Plain ``http.client``: no proxy may come between."""

    host: str
    admin_port: int
    service_port: int
    token: str | None
    transactions: bool

    def wait(self, deadline_s: float, check_alive: Callable[[], None]) -> None:
        """Return when everything answers.

        Args:
            deadline_s: on the clock of ``time.monotonic``.
            check_alive: raises when the broker's process is gone and waiting is in vain.

        Raises:
            BrokerNotReady: the deadline passed; says what was still missing.
        """
        missing = "its health check"
        while True:
            check_alive()
            try:
                step = self._missing()
            except (OSError, http.client.HTTPException) as error:
                step = f"{missing} ({error})" if missing == "its health check" else missing
            if step is None:
                return
            missing = step.split(" (")[0]
            if time.monotonic() > deadline_s:
                raise BrokerNotReady(f"The broker did not get ready in time: waiting for {step}.")
            time.sleep(_POLL_S)

    def _missing(self) -> str | None:
        status, _ = self._ask("GET", "/admin/v2/brokers/health")
        if status in (401, 403):
            # Authentication is on and we may not look further: what listens has to be enough.
            with socket.create_connection((self.host, self.service_port), _HTTP_TIMEOUT_S):
                return None
        if status != 200:
            return "its health check"
        status, body = self._ask("GET", "/admin/v2/namespaces/public")
        if status in (401, 403):
            return None  # The token is good for the health check and no more.
        # The broker makes it by itself; making it here as well would race with that and stop
        # its setup half-way.
        if status != 200 or "public/default" not in json.loads(body):
            return "the namespace public/default"
        if self.transactions:
            # The look-up makes the broker own the coordinator's topic, so that the first client's
            # connect succeeds. We stop there: connecting makes a coordinator finish old
            # transactions, and whether a *client* does that is what a test wants to see. (So
            # coordinatorStats, which answers only once somebody has connected, is of no use.)
            status, body = self._ask("GET", f"/admin/v2/persistent/{_ASSIGN}/partitions")
            if status != 200 or not json.loads(body)["partitions"]:
                return "the transaction coordinator"
            status, _ = self._ask("GET", f"/lookup/v2/topic/persistent/{_ASSIGN}-partition-0")
            if status != 200:
                return "the transaction coordinator's topic"
        return None

    def _ask(self, method: str, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.host, self.admin_port, timeout=_HTTP_TIMEOUT_S)
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        try:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()
