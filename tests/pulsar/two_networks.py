"""A cluster on two networks, and a client on each, which does not reach the other one.

``python -m tests.pulsar.two_networks``, in a network namespace of its own, prints a JSON object:
by network, the answers to the client.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from eos.client import PulsarClient
from eos.errors import EosError
from eos.testing import PulsarCluster
from tests.support.one_client import plain_read, use_all

PORT: Final = 6650
BOUND_PORT: Final = 6660
"""The port whose clients get the external address without a ``listener_name``."""
_ADMIN_PORT: Final = 8080
_CLIENT_S: Final = 60
BROKERS: Final = {"internal": "10.71.0.1", "external": "10.72.0.1"}
_CLIENTS: Final = {"internal": "10.71.0.2", "external": "10.72.0.2"}


def _ip(*args: str, inside: tuple[str, ...] = ()) -> None:
    subprocess.run([*inside, "ip", *args], check=True)


@contextmanager
def _client_on(network: str) -> Iterator[tuple[str, ...]]:
    """Connect a new namespace to ``network``; yield the command that runs a program in it."""
    with subprocess.Popen(
        ["unshare", "-n", "sh", "-c", "echo ready; exec cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdout.readline()
        inside = ("nsenter", "-t", str(holder.pid), "-n")
        try:
            pair = (network, "type", "veth", "peer", "name", "card", "netns", str(holder.pid))
            _ip("link", "add", *pair)
            _ip("address", "add", f"{BROKERS[network]}/24", "dev", network)
            _ip("link", "set", network, "up")
            _ip("address", "add", f"{_CLIENTS[network]}/24", "dev", "card", inside=inside)
            _ip("link", "set", "card", "up", inside=inside)
            yield inside
        finally:
            holder.stdin.close()  # it ends, and the namespace with it


def _answer(call: Callable[[], str]) -> str:
    try:
        return call()
    except EosError as error:
        return f"{type(error).__name__}: {error}"


def client(network: str) -> dict[str, str]:
    """The program of the client on ``network``: by listener, the broker's address or the error."""
    url, answers = f"pulsar://{BROKERS[network]}:{PORT}", {}

    def ask(url: str, listener: str | None, topic: str) -> str:
        with PulsarClient(url, listener_name=listener, timeout_s=10) as connected:
            return use_all(connected, f"persistent://public/default/{network}-{topic}")

    for listener in (None, "internal", "external", "nowhere"):
        answers[str(listener)] = _answer(lambda at=listener: ask(url, at, str(at)))
    bound = url.replace(str(PORT), str(BOUND_PORT))
    answers["bound"] = _answer(lambda: ask(bound, None, "bound"))
    answers["plain"] = plain_read(url, f"{network}-{network}", listener_name=network).decode()
    return answers


def cluster() -> dict[str, dict[str, str]]:
    """Run the cluster, and a client on each network; return the answers by network."""
    _ip("link", "set", "lo", "up")
    advertised = ",".join(f"{name}:pulsar://{at}:{PORT}" for name, at in BROKERS.items())
    config = {
        "advertisedListeners": advertised,
        "internalListenerName": "internal",
        "bindAddress": "0.0.0.0",
        "bindAddresses": f"external:pulsar://0.0.0.0:{BOUND_PORT}",
    }
    answers = {}
    with (
        _client_on("internal") as internal,
        _client_on("external") as external,
        PulsarCluster(1, 1, config=config, port=PORT, admin_port=_ADMIN_PORT),
    ):
        for network, inside in (("internal", internal), ("external", external)):
            argv = [*inside, sys.executable, "-m", "tests.pulsar.two_networks", network]
            ended = subprocess.run(argv, stdout=subprocess.PIPE, timeout=_CLIENT_S, check=True)
            answers[network] = json.loads(ended.stdout)
    return answers


if __name__ == "__main__":
    print(json.dumps(client(sys.argv[1]) if len(sys.argv) > 1 else cluster()))
