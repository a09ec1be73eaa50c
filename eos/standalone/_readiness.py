"""When a broker is ready: healthy, with a namespace to write to and a coordinator that answers."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from eos.admin.request import ADMIN_API, admin_request
from eos.errors import BrokerNotReady, EosError
from eos.transport.http import Origin, Response, perform

_POLL_S = 0.1
_HTTP_TIMEOUT_S = 5.0
_ASSIGN = "pulsar/system/transaction_coordinator_assign"


def await_ready(
    missing: Callable[[], str | None],
    first: str,
    deadline_s: float,
    check_alive: Callable[[], None],
) -> None:
    """Return when nothing is missing.

    Args:
        missing: what still is, or None; an error means that it is the same as before.
        first: what is missing at the beginning.
        deadline_s: on the clock of ``time.monotonic``.
        check_alive: raises when the process is gone and waiting is in vain.

    Raises:
        BrokerNotReady: the deadline passed; says what was still missing.
    """
    last = first
    while True:
        check_alive()
        try:
            step = missing()
        except (OSError, EosError) as error:
            step = f"{last} ({error})" if last == first else last
        if step is None:
            return
        last = step.split(" (")[0]
        if time.monotonic() > deadline_s:
            raise BrokerNotReady(f"The broker did not get ready in time: waiting for {step}.")
        time.sleep(_POLL_S)


@dataclass(frozen=True)
class PortProbe:
    """Asks whether somebody listens."""

    host: str
    port: int

    def wait(self, deadline_s: float, check_alive: Callable[[], None]) -> None:
        """Return when somebody does; see ``await_ready``."""
        await_ready(self._missing, f"port {self.port}", deadline_s, check_alive)

    def _missing(self) -> None:
        socket.create_connection((self.host, self.port), _HTTP_TIMEOUT_S).close()


@dataclass(frozen=True)
class Probe:
    """Asks one broker over its admin port, where as yet any status may come."""

    host: str
    admin_port: int
    service_port: int
    token: str | None
    transactions: bool

    def wait(self, deadline_s: float, check_alive: Callable[[], None]) -> None:
        """Return when everything answers; see ``await_ready``."""
        await_ready(self._missing, "its health check", deadline_s, check_alive)

    def _missing(self) -> str | None:
        status = self._ask("/admin/v2/brokers/health").status
        if status in (401, 403):
            # Authentication is on and we may not look further: what listens has to be enough.
            with socket.create_connection((self.host, self.service_port), _HTTP_TIMEOUT_S):
                return None
        if status != 200:
            return "its health check"
        found = self._ask("/admin/v2/namespaces/public")
        if found.status in (401, 403):
            return None  # The token is good for the health check and no more.
        # The broker makes it by itself; making it here as well would race with that and stop
        # its setup half-way.
        if found.status != 200 or "public/default" not in json.loads(found.body):
            return "the namespace public/default"
        if self.transactions:
            # The look-up makes the broker own the coordinator's topic, so that the first client's
            # connect succeeds. We stop there: connecting makes a coordinator finish old
            # transactions, and whether a *client* does that is what a test wants to see. (So
            # coordinatorStats, which answers only once somebody has connected, is of no use.)
            found = self._ask(f"/admin/v2/persistent/{_ASSIGN}/partitions")
            if found.status != 200 or not json.loads(found.body)["partitions"]:
                return "the transaction coordinator"
            for number in range(json.loads(found.body)["partitions"]):
                topic = f"persistent/{_ASSIGN}-partition-{number}"
                # A redirect says that another broker has it.
                if self._ask(f"/lookup/v2/topic/{topic}").status not in (200, 307):
                    return "the transaction coordinator's topic"
        return None

    def _ask(self, path: str) -> Response:
        origin = Origin(tls=False, host=self.host, port=self.admin_port)
        deadline = time.monotonic() + _HTTP_TIMEOUT_S
        authorization = None if self.token is None else f"Bearer {self.token}"
        request = admin_request("GET", path, authorization=authorization)
        return perform(request, ADMIN_API, origin, None, deadline)
