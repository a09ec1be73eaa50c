"""Secrets and Spark: no state, page or log of Spark has one, even at DEBUG; and a
role that may not write to one of many topics gets one clear error."""

from __future__ import annotations

import base64
import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from eos.chaos.cluster.spark_env import spark_env
from eos.client import PulsarClient
from eos.commit_log import CommitLog
from eos.transport.auth import Auth
from tests.support.judge import drain
from tests.support.processes import driver
from tests.support.secured import ADMIN, PASSWORD, Secured, secured_broker
from tests.support.spark_releases import HAS_DATA_SOURCES
from tests.support.token_server import token_server
from tests.support.tokens import token

CLIENT_SECRET = "-".join(("of", "the", "client", "and", "no", "one", "else"))
NAMESPACE = "public/some"
UI_PATHS = (
    "/jobs/", "/stages/", "/storage/", "/environment/", "/executors/", "/SQL/",
    "/SQL/execution/?id=0", "/StreamingQuery/",
    "/api/v1/applications/{app}/environment", "/api/v1/applications/{app}/jobs",
    "/api/v1/applications/{app}/stages?details=true", "/api/v1/applications/{app}/sql?details=true",
)  # fmt: skip


@pytest.fixture(scope="module")
def secured(tmp_path_factory) -> Iterator[Secured]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as running:
        yield running


def open_topics(secured: Secured) -> tuple[str, str]:
    """Topics that the role ``writer`` may and may not write to."""
    secured.broker.admin("PUT", f"/v2/namespaces/{NAMESPACE}")
    topics = tuple(f"{NAMESPACE}/{name}" for name in ("open", "closed"))
    with PulsarClient(secured.broker.service_url, auth=Auth(token=ADMIN)) as client:
        for topic in topics:
            client.entry_producer(f"persistent://{topic}", create=True).close()
    secured.allow(topics[0], "produce", "consume")
    return f"persistent://{topics[0]}", f"persistent://{topics[1]}"


def forms(secret: str) -> Iterator[str]:
    """Return the forms of ``secret``: plain, and within base64."""
    yield secret
    for offset in range(3):
        text = base64.b64encode(b"\0" * offset + secret.encode()).decode().rstrip("=")
        # Without the characters that depend on its neighbours.
        yield text[{0: 0, 1: 2, 2: 3}[offset] : -2]


def found(text: str, secrets: list[str]) -> list[str]:
    return [form for secret in secrets for form in forms(secret) if form in text]


def test_forms_of_a_secret_are_found():
    hidden = base64.b64encode(f"pickled {CLIENT_SECRET} and more".encode()).decode()
    assert found(hidden, [CLIENT_SECRET])
    assert found(f"x{CLIENT_SECRET}", [CLIENT_SECRET])
    assert not found(hidden, [PASSWORD])


def read_ui(line: str) -> str:
    """Read all pages of Spark's UI, one after the other."""
    _, url, app = line.split()
    pages = []
    for path in UI_PATHS:
        with urllib.request.urlopen(url + path.format(app=app), timeout=30) as page:
            pages.append(page.read().decode())
    assert "WriteTask" in "".join(pages)  # these are the pages of the write jobs
    return "".join(pages)


def process_list() -> str:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().decode("utf-8", "replace"))
        except OSError:  # it has ended
            continue
    return "\n".join(lines)


def contents(folder: Path) -> dict[str, str]:
    """Return the contents of all files below ``folder``, by name."""
    return {
        str(path): path.read_bytes().decode("latin-1")
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()  # the others are Spark's own programs
    }


@pytest.mark.timeout(400)
def test_spark_keeps_shows_and_logs_no_secret(secured, tmp_path, tmp_path_factory):
    topic, closed_topic = open_topics(secured)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    own, wrong = token("writer"), token("writer", b"x" * 32)
    trusted = {"tls_trust_certs_file": secured.trusted}
    secrets = [own, own.rpartition(".")[2], wrong, PASSWORD, CLIENT_SECRET]
    with token_server(tmp_path_factory.mktemp("issuer"), CLIENT_SECRET) as issuer:
        issuer.role, issuer.life_s = "writer", 3.0
        plan = {
            "service_url": secured.broker.tls_service_url,
            "admin_url": secured.broker.tls_admin_url,
            "folder": str(scratch),
            "topic": topic,
            "closed_topic": closed_topic,
            "logins": {
                "token": {**trusted, "token": own},
                "basic": {**trusted, "basic_user": "writer", "basic_password": PASSWORD},
                "oauth2": {**trusted, **issuer.options()},
            },
            "refused": {
                "wrong-token": {**trusted, "token": wrong},
                "wrong-password": {
                    **trusted, "basic_user": "writer", "basic_password": f"no-{PASSWORD}",
                },
                "untrusted": {"token": own},
            },
        }  # fmt: skip
        err = tmp_path / "err"
        with driver("tests.sinks.login_driver", env=spark_env(scratch), err=err) as process:
            print(json.dumps(plan), file=process.stdin, flush=True)
            printed: list[str] = []
            for line in process.stdout:
                printed.append(line)
                if line.startswith("ui "):
                    break
            else:
                raise AssertionError(err.read_text()[-3000:])
            shown = {"UI": read_ui(printed[-1]), "process list": process_list()}
            shown |= contents(scratch)
            process.communicate(timeout=60)
        secrets += issuer.given
    shown |= contents(scratch) | {"stdout": "".join(printed), "stderr": err.read_text()}
    assert "DEBUG:py4j.clientserver:Command to send" in shown["stderr"]
    assert "tests.sinks.login_driver" in shown["process list"]
    assert "CoarseGrainedExecutorBackend" in shown["process list"]
    for kind in ("/events/", "/spark-home/work/", "/checkpoint/", "/log/"):
        assert any(kind in name for name in shown), kind
    assert {
        name: found(text, secrets) for name, text in shown.items() if found(text, secrets)
    } == {}
    check_what_was_said(secured, scratch, printed, topic)


def check_what_was_said(secured: Secured, scratch: Path, printed: list[str], topic: str) -> None:
    said = dict(line.split(" ", 1) for line in printed)
    closed = ["token-closed", "basic-closed", "oauth2-closed"]
    refused = [*closed, "token-stream"]
    if HAS_DATA_SOURCES:
        refused += ["token-format-closed", "basic-format-closed", "oauth2-format-closed"]
        assert [len(json.loads(said[way])) for way in ("read", "mounted")] == [6, 5]
        assert "DataSourceV2ScanRelation" in said["read"] or "RelationV2" in said["read"]
        assert "code 3" in said["wrong-token-read"]
        assert "Unauthorized" in said["mounted-insert"]
    assert [said[way] for way in ("token", "basic", "oauth2", "long")] == ["written\n"] * 4
    # Tokens were valid for three seconds, and tasks wrote for five through one connection each.
    records = CommitLog.open_read_only(scratch / "log", "long").records()
    assert [one.state for one in records if one.epoch] == ["OPEN", "PREPARED", "COMMITTED"]
    for way in refused:
        assert re.search(r"Unauthorized.*code 4.*permissions of its role", said[way]), said[way]
    assert "code 3" in said["wrong-token"]
    assert "code 3" in said["wrong-password"]
    assert "tls_trust_certs_file" in said["untrusted"]
    for way in closed:
        records = CommitLog.open_read_only(scratch / "log", way).records()
        assert [one.state for one in records if one.epoch] == ["OPEN", "ABORTING", "ABORTED"]
        assert "closed" in records[-1].reason.detail
    seen = drain(secured.broker.service_url, topic, token=ADMIN)
    # 100 of each way, and five of each of two tasks; none of the epochs for several topics.
    assert len(seen) == (610 if HAS_DATA_SOURCES else 310)
