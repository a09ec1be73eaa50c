"""TLS and tokens against a real broker that requires both."""

from __future__ import annotations

import pickle
import threading
import time
import traceback

import pytest
import trustme

from eos.client import PulsarClient
from eos.errors import (
    ConfigurationError,
    ConnectionLost,
    EosError,
    ProtocolError,
    Unauthorized,
)
from eos.testing import PulsarStandalone
from eos.transport.auth import Auth
from eos.wire.commands import TxnAction
from tests.support.tls import issue, tls_config
from tests.support.tokens import CONFIG, token


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """A broker with TLS and token authentication, and the certificate file of its authority."""
    folder = tmp_path_factory.mktemp("tls")
    config = {
        **tls_config(folder, trustme.CA(), "AuthenticationProviderToken"),
        **CONFIG,
    }
    with PulsarStandalone(config=config, admin_token=token("admin")) as broker:
        yield broker, str(folder / "ca.pem")


def write(url: str, auth: Auth, name: str) -> None:
    with PulsarClient(url, auth=auth, timeout_s=10) as client:
        producer = client.entry_producer(name, create=True)
        with client.transaction(timeout_s=60) as txn:
            for _ in range(8):  # a thread reads acknowledgements while this one writes
                producer.send(b"x" * 700_000, txn=txn)


def test_tls_with_a_trusted_authority_works_for_token_file_and_function(secured, name, tmp_path):
    broker, trusted = secured
    file = tmp_path / "token"
    file.write_text(token("admin") + "\n")
    for credentials in (
        {"token": token("admin")},
        {"token_file": str(file)},
        {"token": lambda: token("admin")},
    ):
        auth = Auth(tls_trust_certs_file=trusted, **credentials)
        write(broker.tls_service_url, auth, name)


def test_several_threads_write_through_one_tls_connection(secured, name):
    """OpenSSL's objects are not thread-safe; the broker must receive exactly the bytes sent."""
    broker, trusted = secured
    auth = Auth(token=token("admin"), tls_trust_certs_file=trusted)
    with PulsarClient(broker.tls_service_url, auth=auth, timeout_s=20) as client:
        client.entry_producer(name, create=True).close()
        txn = client.transaction(timeout_s=60)
        acknowledgements: list[list[object]] = []

        def send(letter: bytes) -> None:
            producer = client.entry_producer(name)
            sent = [producer.send(letter * 60_000, txn=txn) for _ in range(40)]
            acknowledgements.append(
                [acknowledgement.result(timeout=20) for acknowledgement in sent]
            )

        threads = [threading.Thread(target=send, args=(letter,)) for letter in (b"a", b"b", b"c")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        txn.commit()
        assert sorted(len(set(ids)) for ids in acknowledgements) == [40] * 3
        # The broker checks each entry's crc32c: one wrong byte would have poisoned the transaction.


def test_an_untrusted_certificate_is_refused_with_the_option_to_set(secured, name):
    broker, _ = secured
    with pytest.raises(ConfigurationError, match="tls_trust_certs_file"):
        write(broker.tls_service_url, Auth(token=token("admin")), name)


def test_an_authority_that_only_the_environment_names_is_trusted(secured, name, monkeypatch):
    broker, trusted = secured
    monkeypatch.setenv("SSL_CERT_FILE", trusted)
    write(broker.tls_service_url, Auth(token=token("admin")), name)


def test_a_service_url_with_the_admin_apis_port_is_recognised(secured):
    broker, _ = secured
    url = broker.admin_url.replace("http", "pulsar")
    with (
        PulsarClient(url, timeout_s=10) as client,
        pytest.raises(ProtocolError, match=r"HTTP port\..*binary port \(6650\)"),
    ):
        client.lookup.any_broker()


def test_a_certificate_for_another_name_is_refused_with_what_to_change(secured, name):
    broker, trusted = secured
    url = broker.tls_service_url.replace("127.0.0.1", "localhost")
    auth = Auth(token=token("admin"), tls_trust_certs_file=trusted)
    with pytest.raises(ConfigurationError, match=r"mismatch.*service_url"):
        write(url, auth, name)


def test_tls_spoken_to_a_plain_port_and_the_other_way_round_is_an_error_in_time(secured, name):
    broker, trusted = secured
    auth = Auth(token=token("admin"), tls_trust_certs_file=trusted)
    plain, tls = broker.service_url, broker.tls_service_url
    http = broker.admin_url.replace("http:", "pulsar+ssl:")
    as_tls, as_plain = plain.replace("pulsar:", "pulsar+ssl:"), tls.replace("+ssl:", ":")
    needs = r"its port: pulsar\+ssl:// needs the broker's TLS port"
    for url, hint in ((as_tls, needs), (http, needs), (as_plain, r"does it need pulsar\+ssl://")):
        started = time.monotonic()
        with (
            PulsarClient(url, auth=auth, timeout_s=12) as client,
            pytest.raises(ConnectionLost, match=hint),
        ):
            client.lookup.any_broker()
        assert time.monotonic() - started < 40


WRONG = token("admin", b"x" * 32)


@pytest.mark.parametrize(
    "auth",
    [Auth(), Auth(token=WRONG), Auth(token=lambda: WRONG), Auth(token="nonsense")],
    ids=["none", "another key", "function", "nonsense"],
)
def test_a_wrong_token_is_unauthorized_and_never_shown(secured, name, auth):
    broker, _ = secured
    with pytest.raises(Unauthorized) as caught:
        write(broker.service_url, auth, name)
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(auth)
    for part in WRONG.split("."):
        assert part not in shown
    assert WRONG not in str(pickle.loads(pickle.dumps(caught.value)).__dict__)


def test_a_rotated_token_file_is_used_by_the_next_connection(secured, name, tmp_path):
    broker, _ = secured
    file = tmp_path / "token"
    file.write_text(WRONG)
    auth = Auth(token_file=str(file))
    with PulsarClient(broker.service_url, auth=auth, timeout_s=10) as client:
        with pytest.raises(Unauthorized):
            client.coordinators.count()
        file.write_text(token("admin"))
        assert client.coordinators.count() == 1


def test_another_principal_can_neither_write_in_a_transaction_nor_end_it(secured):
    broker, _ = secured
    with (
        PulsarClient(broker.service_url, auth=Auth(token=token("owner"))) as owner,
        PulsarClient(broker.service_url, auth=Auth(token=token("other"))) as other,
    ):
        txn = owner.transaction(timeout_s=60)
        stranger = other.join(txn.id)
        for attempt in (
            lambda: stranger.register(["persistent://public/default/t"]),
            lambda: other.coordinators.end(txn.id, TxnAction.COMMIT, timeout_s=10),
            lambda: other.coordinators.end(txn.id, TxnAction.ABORT, timeout_s=10),
        ):
            with pytest.raises(EosError) as caught:
                attempt()
            print(repr(caught.value))
        txn.commit()


@pytest.mark.broker
def test_a_client_certificate_authenticates(tmp_path):
    """Only CONNECT: a standalone broker that requires certificates can't create its namespaces."""
    authority = trustme.CA()
    config = tls_config(tmp_path, authority, "AuthenticationProviderTls")
    own = authority.issue_cert("client.example", common_name="client")
    chain, private = issue(tmp_path, authority, own, "client")
    trusted = str(tmp_path / "ca.pem")
    known = Auth(
        tls_trust_certs_file=trusted, tls_certificate_file=chain, tls_private_key_file=private
    )
    with PulsarStandalone(config=config) as broker:
        with PulsarClient(broker.tls_service_url, auth=known) as client:
            assert client.lookup.any_broker().is_alive
        unknown = Auth(tls_trust_certs_file=trusted)
        with (
            PulsarClient(broker.tls_service_url, auth=unknown) as client,
            pytest.raises(Unauthorized),
        ):
            client.lookup.any_broker()
