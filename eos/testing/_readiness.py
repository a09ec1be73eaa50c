"""Wait until a broker is ready: healthy, with its namespace and its transaction coordinator."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from eos.admin import ADMIN_API, admin_request
from eos.errors import BrokerNotReady, EosError
from eos.transport.http import Origin, Response, perform

_POLL_S = 0.1
_HTTP_TIMEOUT_S = 5.0
_ASSIGN = "pulsar/system/transaction_coordinator_assign"
_RELEVANT: Final = re.compile(r"ERROR|Exception|Caused by|Error:|FATAL")


def await_ready(
    missing: Callable[[], str | None],
    first: str,
    deadline_s: float,
    check_alive: Callable[[], None],
) -> None:
    """Wait until ``missing``, at first the thing ``first``, returns None.

    ``check_alive`` raises if the process has exited.

    Raises:
        BrokerNotReady: ``deadline_s`` (``time.monotonic``) passed; the message names the thing.
    """
    last = first
    while True:
        check_alive()
        try:
            step = missing()
        except (OSError, EosError) as error:  # the same is missing as before
            step = f"{last} ({error})" if last == first else last
        if step is None:
            return
        last = step.split(" (")[0]
        if time.monotonic() > deadline_s:
            raise BrokerNotReady(f"The broker was not ready in time: waiting for {step}.")
        time.sleep(_POLL_S)


def relevant_tail(log: str, count: int = 15) -> str:
    """Return the last lines of a log that look like errors, or simply the last lines."""
    lines = log.splitlines()
    relevant = [line for line in lines if _RELEVANT.search(line)] or lines
    return "\n".join(line[:300] for line in relevant[-count:])


@dataclass(frozen=True)
class PortProbe:
    """Waits until a port is open."""

    host: str
    port: int

    def wait(self, deadline_s: float, check_alive: Callable[[], None]) -> None:
        """Return when it is; see ``await_ready``."""
        await_ready(self._missing, f"port {self.port}", deadline_s, check_alive)

    def _missing(self) -> None:
        socket.create_connection((self.host, self.port), _HTTP_TIMEOUT_S).close()


@dataclass(frozen=True)
class Probe:
    """Waits until a broker is ready, by its admin API, which may return any status meanwhile."""

    host: str
    admin_port: int
    service_port: int
    token: str | None
    transactions: bool

    def wait(self, deadline_s: float, check_alive: Callable[[], None]) -> None:
        """Return when it is; see ``await_ready``."""
        await_ready(self._missing, "its health check", deadline_s, check_alive)

    def _missing(self) -> str | None:
        status = self._ask("/admin/v2/brokers/health").status
        if status in (401, 403):
            # Authentication is on and denies access: an open port must be enough.
            with socket.create_connection((self.host, self.service_port), _HTTP_TIMEOUT_S):
                return None
        if status != 200:
            return "its health check"
        found = self._ask("/admin/v2/namespaces/public")
        if found.status in (401, 403):
            return None  # The token allows only the health check.
        # The broker creates it automatically. Creating it here as well would race with that and
        # stop the broker's setup half-way.
        if found.status != 200 or "public/default" not in json.loads(found.body):
            return "the namespace public/default"
        if self.transactions:
            # The lookup makes the broker own the coordinator's topic, so that the first client's
            # connect succeeds. Do not connect: that makes a coordinator finish old transactions,
            # and tests check whether a *client* does so. (Hence not by coordinatorStats, which
            # answers only after a connect.)
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
