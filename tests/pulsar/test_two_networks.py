"""A broker with an address on each of two networks, and clients that reach only one of them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from tests.pulsar.two_networks import BROKERS, PORT
from tests.support.checkout import ROOT

pytestmark = [pytest.mark.broker, pytest.mark.slow]
_TRY = "unshare -n ip link add one type veth peer name two"


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, str]]:
    """The answers to the clients, by their network."""
    if not (shutil.which("ip") and shutil.which("unshare")):
        pytest.skip("this machine has no ip or unshare")
    if subprocess.run(_TRY.split(), capture_output=True, check=False).returncode:
        pytest.skip("network namespaces can't be made here; as root they can")
    argv = ["unshare", "-n", sys.executable, "-m", "tests.pulsar.two_networks"]
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)
    assert ended.returncode == 0, ended.stderr
    answers: dict[str, dict[str, str]] = json.loads(ended.stdout)
    return answers


@pytest.mark.parametrize("network", BROKERS)
def test_the_listener_of_the_own_network_is_used(answers, network):
    assert answers[network][network] == f"pulsar://{BROKERS[network]}:{PORT}"
    assert answers[network]["plain"] == "x", "plain pulsar-client reads the same"


def test_without_a_listener_name_the_internal_address_is_used(answers):
    assert answers["internal"]["None"] == answers["internal"]["internal"]


@pytest.mark.parametrize(
    ("network", "listener"),
    [("internal", "external"), ("external", "internal"), ("external", "None")],
)
def test_the_error_of_an_address_on_another_network_names_the_option(answers, network, listener):
    said = answers[network][listener]
    other = BROKERS["external" if listener == "external" else "internal"]
    assert said.startswith(f"Unreachable: Can't connect to pulsar://{other}:{PORT}: ")
    assert "set listener_name (listenerName, --listener-name)" in said


@pytest.mark.parametrize("network", BROKERS)
def test_a_listener_that_the_broker_does_not_have_is_named(answers, network):
    said = answers[network]["nowhere"]
    assert said.startswith("ConfigurationError: ")
    assert "has no advertised listener 'nowhere'. listener_name must be one of" in said


def test_a_port_that_is_bound_to_a_listener_needs_no_listener_name(answers):
    assert answers["external"]["bound"] == answers["external"]["external"]
