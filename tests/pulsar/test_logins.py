"""Every way to log in, and every way to be refused, at a broker with all of them enabled.

There is one clear error in time, the epoch is aborted, the log has the reason, and no secret shows.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from eos import failpoints
from eos.admin import Transport
from eos.client import PulsarClient
from eos.errors import (
    ConfigurationError,
    ConnectionLost,
    EosError,
    NotAllowed,
    Retriable,
    Unauthorized,
)
from eos.steps import Step
from eos.testing import maven
from eos.transport._oauth2 import token_cache
from eos.transport.auth import Auth
from tests.support.judge import drain
from tests.support.plain_driver import PlainDriver, rows_of
from tests.support.secured import ADMIN, PASSWORD, Secured, secured_broker
from tests.support.token_server import TokenServer, token_server
from tests.support.tokens import token
from tests.transport.scripted import wait_until

CLIENT_SECRET = "-".join(("of", "the", "client"))
WRONG = token("writer", b"x" * 32)
EXPIRED = token("writer", life_s=-10)
DEADLINE_S = 15.0


@pytest.fixture(scope="module")
def secured(tmp_path_factory) -> Iterator[Secured]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.fixture(scope="module")
def issuer(tmp_path_factory) -> Iterator[TokenServer]:
    with token_server(tmp_path_factory.mktemp("issuer"), CLIENT_SECRET) as running:
        running.role = "writer"
        yield running


@pytest.fixture
def login(secured, issuer, tmp_path) -> Callable[[str], Auth]:
    """A valid login of the role ``writer``, by its method."""
    token_cache.cache_clear()
    issuer.life_s, issuer.secret = 3600.0, CLIENT_SECRET
    issuer.write_credentials(CLIENT_SECRET)

    def make(way: str) -> Auth:
        (tmp_path / "token").write_text(token("writer"))
        ways = {
            "token": {"token": token("writer")},
            "callable": {"token": lambda: token("writer")},
            "file": {"token_file": str(tmp_path / "token")},
            "oauth2": issuer.options(),
            "basic": {"basic_user": "writer", "basic_password": PASSWORD},
            "tls": {
                "tls_certificate_file": secured.certificate,
                "tls_private_key_file": secured.key,
            },
        }
        return Auth(tls_trust_certs_file=secured.trusted, **ways[way])

    return make


@pytest.fixture
def make_driver(secured, tmp_path, name) -> Iterator[Callable[..., PlainDriver]]:
    """Drivers of one sink on one topic, which exists."""
    topic = f"persistent://public/default/{name}"
    with PulsarClient(secured.broker.service_url, auth=Auth(token=ADMIN)) as client:
        client.entry_producer(topic, create=True).close()
    drivers: list[PlainDriver] = []

    def make(auth: Auth, service_url: str = "") -> PlainDriver:
        driver = PlainDriver(
            service_url or secured.broker.tls_service_url,
            tmp_path / "log",
            name,
            topic,
            auth=auth,
            admin_url=secured.broker.tls_admin_url,
            deadline_s=DEADLINE_S / 3,
            timeout_s=5.0,
            max_attempts=2,
        )
        drivers.append(driver)
        return driver

    yield make
    for driver in drivers:
        driver.close()


def values(secured: Secured, driver: PlainDriver) -> list[bytes]:
    return [seen.value for seen in drain(secured.broker.service_url, driver.topic, token=ADMIN)]


# --- every way in --------------------------------------------------------------------------------

WAYS = ("token", "callable", "file", "oauth2", "basic", "tls")


@pytest.mark.parametrize("way", WAYS)
def test_an_epoch_is_written_and_the_admin_api_answers(secured, login, make_driver, way):
    driver = make_driver(login(way))
    assert driver.run("0").status == "written"
    assert values(secured, driver) == rows_of("0")
    transport = Transport(secured.broker.tls_admin_url, login(way), timeout_s=10)
    path = f"/lookup/v2/topic/persistent/{driver.topic.partition('://')[2]}"
    assert transport.ask_json("GET", path)["nativeUrl"] == secured.broker.service_url
    broker_says = secured.broker.log()
    if maven.pulsar_version().startswith("4."):  # 5.0.0-M1 does not log its settings
        assert '"basicAuthConf" : ***' in broker_says
    assert not [one for one in (PASSWORD, CLIENT_SECRET, ADMIN) if one in broker_says]


@pytest.mark.parametrize("way", ["oauth2", "basic"])
def test_recovery_logs_in_as_the_driver_did(
    secured,
    issuer,
    login,
    make_driver,
    recovery,
    dies_behind,
    monkeypatch,
    name,
    tmp_path,
    way,
):
    driver = make_driver(login(way))
    dies_behind(driver, Step.PREPARE, "0")
    driver.close()
    monkeypatch.setenv("EOS_BASIC_PASSWORD", PASSWORD)
    options = issuer.options() if way == "oauth2" else {"basic_user": "writer"}
    args = [f"--{key.replace('_', '-')}={value}" for key, value in options.items()]
    args += ["--tls-trust-certs-file", secured.trusted, "--commit-log", str(tmp_path / "log")]
    ended = recovery("resolve", name, *args, "--apply", "--yes")
    assert ended.code == 0, ended
    assert driver.states("0")[-1] == "COMMITTED"
    monkeypatch.setenv("EOS_BASIC_PASSWORD", "wrong-" + PASSWORD)
    issuer.write_credentials("wrong-" + CLIENT_SECRET)
    token_cache.cache_clear()
    ended = recovery("orphans", *args, "--admin-url", secured.broker.tls_admin_url)
    assert ended.code not in (0, 1), ended
    assert PASSWORD not in ended.raw + ended.out + ended.err
    assert CLIENT_SECRET not in ended.raw + ended.out + ended.err


# --- a long epoch --------------------------------------------------------------------------------


@contextmanager
def every(pause_s: float, call: Callable[[], object]) -> Iterator[None]:
    """Repeat ``call`` in another thread, also while this one waits for the broker."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(pause_s):
            call()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("way", ["callable", "file", "oauth2"])
def test_a_broker_that_asks_again_in_the_middle_of_a_long_transaction_gets_a_fresh_token(
    secured, issuer, login, name, tmp_path, way
):
    """Tokens live for three seconds, the producer and its one connection for ten."""
    given: list[str] = []
    issuer.life_s, issuer.given = 3.0, given
    file = tmp_path / "rotated"

    def fresh() -> str:
        given.append(token("writer", life_s=3.0))
        (tmp_path / "next").write_text(given[-1])
        (tmp_path / "next").replace(file)
        return given[-1]

    ways = {"callable": {"token": fresh}, "file": {"token_file": str(file)}}
    fresh()
    auth = Auth(tls_trust_certs_file=secured.trusted, **(ways.get(way) or issuer.options()))
    topic = f"persistent://public/default/{name}"
    sent = 0
    rotating = every(0.2, fresh) if way == "file" else nullcontext()
    with rotating, PulsarClient(secured.broker.tls_service_url, auth=auth, timeout_s=10) as client:
        producer = client.entry_producer(topic, create=True)
        with client.transaction(timeout_s=60) as txn:
            began = time.monotonic()
            while (lasts_s := time.monotonic() - began) < 10 or len(set(given)) < 4:
                assert lasts_s < 50
                producer.send(b"x", txn=txn).result(timeout=10)
                sent += 1
                time.sleep(0.2)
    assert len(drain(secured.broker.service_url, topic, token=ADMIN)) == sent > 0


def test_a_driver_and_its_epoch_outlive_their_tokens(secured, issuer, login, make_driver):
    issuer.life_s = 3.0
    driver = make_driver(login("oauth2"))
    driver.during_write = lambda _: time.sleep(8)
    assert driver.run("0").status == "written"
    assert driver.states("0") == ["OPEN", "PREPARED", "COMMITTED"]
    assert values(secured, driver) == rows_of("0")


def test_an_expired_token_ends_the_epoch_and_the_next_run_writes_it(secured, login, make_driver):
    def run_until_it_expires(life_s: float) -> PlainDriver:
        expiring = token("writer", life_s=life_s)
        driver = make_driver(Auth(tls_trust_certs_file=secured.trusted, token=expiring))
        pool = driver.participant.client.lookup._pool
        driver.during_write = lambda _: wait_until(
            lambda: not any(one.is_alive for one in pool.connections), timeout_s=60
        )
        with pytest.raises(Unauthorized, match="token"):
            driver.run("0")
        driver.close()
        return driver

    driver = run_until_it_expires(life_s=4)
    if not driver.states("0"):  # a busy machine needs more time to open a transaction
        driver = run_until_it_expires(life_s=20)
    assert driver.states("0")
    assert "PREPARED" not in driver.states("0")
    driver = make_driver(login("token"))
    assert driver.run("0").status == "written"
    assert driver.states("0")[-4:] == ["ABORTED", "OPEN", "PREPARED", "COMMITTED"]
    assert values(secured, driver) == rows_of("0")


# --- every way to be refused ---------------------------------------------------------------------


@dataclass(frozen=True)
class Wrong:
    """A wrong login: its error, the error's text, and the secrets that must not show."""

    change: Callable[[PlainDriver, Secured, TokenServer], None]
    error: type[EosError]
    says: str
    secrets: tuple[str, ...] = ()


def log_in(**options: object) -> Callable[[PlainDriver, Secured, TokenServer], None]:
    def change(driver: PlainDriver, secured: Secured, issuer: TokenServer) -> None:
        driver.auth = Auth(tls_trust_certs_file=secured.trusted, **options)

    return change


def wrong_client(driver: PlainDriver, secured: Secured, issuer: TokenServer) -> None:
    issuer.write_credentials("wrong-" + CLIENT_SECRET)
    log_in(**issuer.options())(driver, secured, issuer)


def silent_issuer(driver: PlainDriver, secured: Secured, issuer: TokenServer) -> None:
    options = {**issuer.options(), "oauth2_issuer_url": "https://127.0.0.1:1"}
    log_in(**options)(driver, secured, issuer)


def untrusted(driver: PlainDriver, secured: Secured, issuer: TokenServer) -> None:
    driver.auth = Auth(token=token("writer"))


def other_name(driver: PlainDriver, secured: Secured, issuer: TokenServer) -> None:
    driver.service_url = secured.broker.tls_service_url.replace("127.0.0.1", "localhost")


def plaintext(driver: PlainDriver, secured: Secured, issuer: TokenServer) -> None:
    driver.service_url = secured.broker.tls_service_url.replace("+ssl", "")


BAD_PASSWORD = "wrong-" + PASSWORD
MATRIX = {
    "wrong token": Wrong(log_in(token=WRONG), Unauthorized, "code 3.*Check the token", (WRONG,)),
    "expired token": Wrong(log_in(token=EXPIRED), Unauthorized, "expires at 20", (EXPIRED,)),
    "no login": Wrong(log_in(), Unauthorized, "requires authentication"),
    "wrong password": Wrong(
        log_in(basic_user="writer", basic_password=BAD_PASSWORD),
        Unauthorized,
        "Check basic_user and basic_password",
        (BAD_PASSWORD, b64encode(f"writer:{BAD_PASSWORD}".encode()).decode()),
    ),
    "wrong client secret": Wrong(
        wrong_client, Unauthorized, "token server at .* answered 401", (CLIENT_SECRET,)
    ),
    "no token server": Wrong(silent_issuer, ConnectionLost, "connect to https://127.0.0.1:1"),
    "untrusted certificate": Wrong(untrusted, ConfigurationError, "can't be verified"),
    "another host name": Wrong(other_name, ConfigurationError, "mismatch"),
    "plaintext": Wrong(plaintext, ConnectionLost, "closed the connection during the handshake"),
}


@pytest.mark.parametrize("what", MATRIX)
def test_refused_tasks_abort_the_epoch_with_one_clear_error_in_the_log(
    secured, issuer, login, make_driver, tmp_path, caplog, what
):
    wrong = MATRIX[what]
    caplog.set_level(logging.DEBUG)
    driver = make_driver(login("token"))
    driver.run("0")
    good = driver.auth, driver.service_url
    started = time.monotonic()
    with (
        failpoints.armed(Step.OPEN, lambda: wrong.change(driver, secured, issuer)),
        pytest.raises(wrong.error, match=wrong.says) as caught,
    ):
        driver.run("1")
    assert time.monotonic() - started < 2 * DEADLINE_S
    attempts = 2 if issubclass(wrong.error, Retriable) else 1
    assert driver.states("1") == ["OPEN", "ABORTING", "ABORTED"] * attempts
    reasons = {record.reason.detail for record in driver.records() if record.state == "ABORTED"}
    assert reasons == {caught.value.message}
    kept = "".join(file.read_bytes().decode("latin-1") for file in files(tmp_path / "log"))
    shown = caplog.text + "".join(traceback.format_exception(caught.value)) + kept
    assert not [secret for secret in (token("writer"), *wrong.secrets) if secret in shown]
    driver.auth, driver.service_url = good
    assert driver.run("1").status == "written"
    assert values(secured, driver) == rows_of("0") + rows_of("1")


@pytest.mark.parametrize("what", MATRIX)
def test_a_refused_driver_fails_in_time_and_claims_nothing(
    secured, issuer, login, make_driver, what
):
    wrong = MATRIX[what]
    first = make_driver(login("token"))
    first.run("0")
    before = first.records()
    wrong.change(first, secured, issuer)
    driver = make_driver(first.auth, service_url=first.service_url)
    started = time.monotonic()
    with pytest.raises(wrong.error, match=wrong.says) as caught:
        driver.run("1")
    assert time.monotonic() - started < DEADLINE_S
    assert caught.value.hint
    assert first.records() == before


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.fixture
def withdraw(secured) -> Iterator[Callable[[], None]]:
    """Takes the permission on ``pulsar/system`` away, and gives it back at the end."""

    def take() -> None:
        secured.allow("pulsar/system")
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:  # the broker notices a moment later
            try:
                with PulsarClient(
                    secured.broker.service_url, auth=Auth(token=token("writer"))
                ) as client:
                    client.coordinators.count()
            except Unauthorized:
                return
            time.sleep(0.1)
        raise AssertionError("the role may still look there")

    yield take
    secured.allow("pulsar/system", "produce", "consume")


def test_without_permission_on_pulsar_system_tasks_abort_and_a_driver_claims_nothing(
    secured, login, make_driver, withdraw
):
    driver = make_driver(login("token"))
    driver.run("0")
    with (
        failpoints.armed(Step.OPEN, withdraw),
        pytest.raises(Unauthorized, match="pulsar/system/transaction_coordinator_assign") as caught,
    ):
        driver.run("1")
    assert driver.states("1") == ["OPEN", "ABORTING", "ABORTED"]
    assert driver.records()[-1].reason.detail == caught.value.message
    before = driver.records()
    with pytest.raises(Unauthorized, match="pulsar/system/transaction_coordinator_assign"):
        make_driver(login("token")).run("1")
    assert driver.records() == before
    assert values(secured, driver) == rows_of("0")


def test_a_namespace_that_requires_encryption_fails_with_a_clear_error(secured, login, make_driver):
    driver = make_driver(login("token"))
    driver.run("0")
    policy = "/v2/namespaces/public/default/encryptionRequired"
    secured.broker.admin("POST", policy, True)
    try:
        with pytest.raises(NotAllowed, match=r"Encryption is required.*key_location"):
            driver.run("1")
    finally:
        secured.broker.admin("POST", policy, False)

    def is_written() -> bool:
        try:
            return driver.run("1").status == "written"
        except NotAllowed:  # topics hear of their namespace's policies a moment later
            return False

    wait_until(is_written)
    assert values(secured, driver) == rows_of("0") + rows_of("1")
