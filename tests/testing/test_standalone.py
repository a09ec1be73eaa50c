"""A real broker: start, kill, restart and removal."""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import http.client
import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from eos.errors import BrokerNotReady, ConfigurationError
from eos.testing import PulsarStandalone, maven
from eos.testing import _settings as settings
from eos.testing._broker import runs_in_docker
from eos.testing._readiness import Probe
from tests.support.tokens import CONFIG, KEY, token
from tests.testing.messages import read, write

pytestmark = pytest.mark.broker

COORDINATOR = "persistent/pulsar/system/transaction_coordinator_assign"


def wait_for(condition: Callable[[], bool], deadline_s: float = 60) -> None:
    end_s = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end_s, "the condition did not come true in time"
        time.sleep(0.05)


def get(broker: PulsarStandalone, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(broker.admin_url.removeprefix("http://"), timeout=10)
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, body


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/standalone-{uuid.uuid4().hex[:8]}"


def test_a_started_broker_answers_and_has_a_coordinator(pulsar_standalone: PulsarStandalone):
    assert get(pulsar_standalone, "/admin/v2/brokers/health")[0] == 200
    assert "public/default" in json.loads(get(pulsar_standalone, "/admin/v2/namespaces/public")[1])
    status, body = get(pulsar_standalone, f"/admin/v2/{COORDINATOR}/partitions")
    assert status == 200
    assert json.loads(body)["partitions"] == 1
    assert pulsar_standalone.start() is pulsar_standalone  # It runs already: no effect.


def test_admin_sends_json_and_parses_the_answer(pulsar_standalone: PulsarStandalone, topic: str):
    path = f"/v2/{topic.replace('://', '/')}/partitions"
    assert pulsar_standalone.admin("PUT", path, 3) is None
    assert pulsar_standalone.admin("GET", path)["partitions"] == 3
    with pytest.raises(BrokerNotReady, match="409") as refused:
        pulsar_standalone.admin("PUT", path, 3)
    assert "already exist" in refused.value.message


def test_admin_ignores_the_environments_proxy(pulsar_standalone: PulsarStandalone, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert "public/default" in pulsar_standalone.admin("GET", "/v2/namespaces/public")


def test_data_and_ports_survive_a_kill(topic: str):
    # Not the shared broker: the other tests need it.
    with PulsarStandalone() as broker:
        before = broker.service_url, broker.admin_url
        pid = broker.pid
        assert pid is not None
        write(broker.service_url, topic, [b"1", b"2", b"3"])

        broker.kill()
        assert not psutil.pid_exists(pid)
        assert not broker.is_running()
        assert broker.pid is None

        broker.restart()
        assert broker.is_running()
        assert (broker.service_url, broker.admin_url) == before
        assert read(broker.service_url, topic, 3) == [b"1", b"2", b"3"]


# In Docker the data is in the container, which Testcontainers' reaper removes.
jvm_only = pytest.mark.skipif(runs_in_docker(), reason="the broker runs in Docker")


@jvm_only
def test_broker_and_folder_go_when_the_owner_dies():
    script = (
        "from eos.testing import PulsarStandalone\n"
        "import os, time\n"
        "broker = PulsarStandalone().start()\n"
        "if os.fork() == 0:\n"  # Keeps the owner's end of the supervisor's pipe open.
        "    time.sleep(60)\n"
        "print(broker.pid, broker.data_dir, flush=True)\n"
        "time.sleep(60)\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert owner.stdout is not None
        pid, folder = owner.stdout.readline().split()
        supervisor = psutil.Process(int(pid)).parent()
        assert supervisor is not None
        assert Path(folder, "broker.log").exists()

        owner.kill()
        wait_for(lambda: not psutil.pid_exists(int(pid)))
        wait_for(lambda: not Path(folder).exists())
        wait_for(lambda: not supervisor.is_running())
    finally:
        os.killpg(owner.pid, signal.SIGKILL)  # The forked child.
        owner.wait()
        owner.stdout.close()


def test_a_failed_start_shows_the_brokers_log_and_leaves_nothing():
    with socket.socket() as occupied:
        occupied.bind((settings.HOST, 0))
        occupied.listen()
        broker = PulsarStandalone(
            config={"brokerServicePort": str(occupied.getsockname()[1])}, transactions=False
        )
        children = set(psutil.Process().children(recursive=True))
        says = "container did not start" if runs_in_docker() else "exited with code"
        with pytest.raises(ConfigurationError, match=says) as caught:
            broker.start()
    if runs_in_docker():
        assert "address already in use" in str(caught.value)
    else:
        assert "Address already in use" in "".join(caught.value.__notes__)
    # The session's other servers may have children for a moment.
    wait_for(lambda: set(psutil.Process().children(recursive=True)) <= children)
    with pytest.raises(BrokerNotReady):
        _ = broker.data_dir


def test_a_broker_with_tokens_tls_and_without_transactions(tmp_path: Path, topic: str):
    secret = os.urandom(32)
    token = jwt("admin", secret)
    authority = trustme.CA()
    certificate = authority.issue_cert(settings.HOST)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    (tmp_path / "key.pem").write_bytes(pkcs8(certificate.private_key_pem.bytes()))
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    config = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "superUserRoles": "admin,CORP\\admin",
        "replicatorPrefix": 'a\t"ü😀"',
        "authenticationProviders": (
            "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"
        ),
        "tokenSecretKey": f"data:;base64,{base64.b64encode(secret).decode()}",
        "brokerServicePortTls": "0",
        "tlsCertificateFilePath": str(tmp_path / "cert.pem"),
        "tlsKeyFilePath": str(tmp_path / "key.pem"),
        "tlsTrustCertsFilePath": str(tmp_path / "ca.pem"),
    }
    with PulsarStandalone(config=config, transactions=False, admin_token=token) as broker:
        pid, folder = broker.pid, broker.data_dir
        assert pid is not None
        assert runs_in_docker() or folder.stat().st_mode & 0o077 == 0
        write(broker.service_url, topic, [b"x"], token)
        assert get(broker, "/admin/v2/brokers/health")[0] == 401
        assert "public/default" in broker.admin("GET", "/v2/namespaces/public")
        if not runs_in_docker():
            used = broker.admin("GET", "/v2/brokers/configuration/runtime")
            assert used["superUserRoles"] == r"[admin, CORP\admin]"
            assert used["replicatorPrefix"] == 'a\t"ü😀"'

        host, port = broker.tls_service_url.removeprefix("pulsar+ssl://").split(":")
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        with (
            socket.create_connection((host, int(port))) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            assert secure.version() is not None

        # Without a token a refused health check counts as ready.
        ports = [int(url.rsplit(":", 1)[1]) for url in (broker.admin_url, broker.service_url)]
        Probe(settings.HOST, *ports, token=None, transactions=True).wait(0.0, lambda: None)

    assert not psutil.pid_exists(pid)
    assert not folder.exists()
    broker.stop()  # The second time: no effect.


def pkcs8(pem: bytes) -> bytes:
    """Convert a key to the only format that Pulsar reads."""
    return serialization.load_pem_private_key(pem, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def jwt(role: str, secret: bytes) -> str:
    def part(content: bytes) -> str:
        return base64.urlsafe_b64encode(content).rstrip(b"=").decode()

    expires = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    claims = {"sub": role, "exp": int(expires.timestamp())}
    text = f"{part(json.dumps({'alg': 'HS256'}).encode())}.{part(json.dumps(claims).encode())}"
    return f"{text}.{part(hmac.digest(secret, text.encode(), hashlib.sha256))}"


def test_without_java_and_docker_the_error_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine.sock")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("EOS_BROKER", raising=False)
    with pytest.raises(ConfigurationError, match=r"Install a JDK of version 17 or newer and Maven"):
        PulsarStandalone().start()


def test_a_java_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("EOS_BROKER", "maven")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigurationError, match="Java 17"):
        PulsarStandalone().start()


def test_an_unknown_engine_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EOS_BROKER", "podman")
    with pytest.raises(ConfigurationError, match="docker or maven"):
        PulsarStandalone().start()


@pytest.mark.parametrize(
    "config",
    [
        {"webServicePort": "soon"},
        {"webServicePort": "8080", "brokerServicePort": "8080"},
        {"maxMessageSize": "1\nx=2"},
        {"a=b": "c"},
    ],
)
def test_an_invalid_setting_is_refused(config: dict[str, str]):
    with pytest.raises(ConfigurationError):
        settings.properties(settings.complete(config, transactions=True, token=None))


def test_the_bookie_accepts_the_brokers_largest_message(
    pulsar_standalone: PulsarStandalone, name: str
):
    topic = f"persistent://public/default/{name}"
    value = os.urandom((5 << 20) - 200)  # 5 MiB with its headers
    write(pulsar_standalone.service_url, topic, [value])
    assert read(pulsar_standalone.service_url, topic, 1) == [value]
    more = settings.complete({"maxMessageSize": str(8 << 20)}, transactions=True, token=None)
    assert int(more["nettyMaxFrameSizeBytes"]) > 8 << 20


def test_the_pytest_plugin_imports_nothing_heavy():
    script = (
        "import sys, pytest\n"
        "before = set(sys.modules)\n"
        "import eos.testing.pytest_plugin\n"
        "print(*sorted(set(sys.modules) - before))\n"
    )
    added = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30
    ).stdout.split()
    assert added == ["eos", "eos.testing", "eos.testing.pytest_plugin"]


@jvm_only
def test_only_the_user_can_read_files_with_secrets(tmp_path: Path):
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    for name in ("broker.conf", "broker.log"):
        (data / name).touch(mode=0o644)
    with PulsarStandalone(data, config=CONFIG, admin_token=token("admin")) as broker:
        broker.admin("GET", "/v2/tenants")
        log = (data / "broker.log").read_text()
        open_to_others = {
            path.name
            for path in data.iterdir()
            if stat.S_IMODE(path.stat().st_mode) & (0o077 if path.is_file() else 0o007)
        }
    assert open_to_others == set()
    if maven.pulsar_version().startswith("4."):  # 5.0.0-M1 does not log its settings
        assert '"tokenSecretKey" : ***' in log
    for secret in (base64.b64encode(KEY).decode(), *token("admin").split(".")):
        assert secret not in log


def test_a_container_listens_on_the_loopback_only(monkeypatch: pytest.MonkeyPatch):
    """Check the request to a container engine; this machine may have no engine."""
    pytest.importorskip("testcontainers")
    from docker.types import HostConfig
    from testcontainers.core import container as testcontainers

    from eos.testing._broker import Container

    monkeypatch.setattr(testcontainers, "DockerClient", lambda **_: None)
    created = Container("4.2.4", None)._create({"bindAddress": "127.0.0.1"}, [6650, 8080])
    bindings = HostConfig(version="1.45", port_bindings=created.ports)["PortBindings"]
    assert bindings == {
        f"{port}/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(port)}] for port in (6650, 8080)
    }
