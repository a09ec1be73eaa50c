"""The dashboard, the alerts and the manual name only metrics that real exporters show."""

from __future__ import annotations

import json
import logging
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.parser import text_string_to_metric_families

from eos.errors import InDoubt, InputError
from eos.metrics import PrometheusListener
from tests.recovery.conftest import recovery  # noqa: F401 - a fixture
from tests.support.watched import Doubtful, FolderDriver, folder_kind

__all__ = ["folder_kind"]

HERE = Path(__file__).parent.parent.parent / "docs"
ALERTS = HERE / "monitoring" / "eos-alerts.yml"
DASHBOARD = HERE / "monitoring" / "eos-dashboard.json"
WITH_TOOL = pytest.mark.skipif(
    not shutil.which("promtool"), reason="promtool, which comes with Prometheus, is not installed"
)
NOT_OURS = {"node_textfile_mtime_seconds"}
# Only a real broker returns a transaction's status: tests/recovery/verbs/test_metrics_verb.py.
ASKED_FOR = {"eos_broker_transactions": {"sink", "status"}}
METRIC = re.compile(r"\b(?:eos|node)_\w+\b")
SELECTOR = re.compile(r"(\w+)\{([^}]*)\}")
MATCHER = re.compile(r'(\w+)(=~|=)"([^"]*)"')


@pytest.fixture
def registry(tmp_path) -> CollectorRegistry:
    """Metrics of a driver with all outcomes: one epoch in doubt, others committed and aborted."""
    registry = CollectorRegistry()

    def fail() -> None:
        raise InputError("no such column")

    driver = FolderDriver(tmp_path, PrometheusListener(registry))
    driver.run("0", ["a"])
    driver.run("1", ["b"])
    with pytest.raises(InputError):
        driver.run("2", ["c"], before_write=fail)
    driver.close()
    doubtful = FolderDriver(
        tmp_path, PrometheusListener(registry), participant=Doubtful(tmp_path / "orders")
    )
    with pytest.raises(InDoubt):
        doubtful.run("3", ["d"])
    doubtful.close()
    return registry


@pytest.fixture
def text(registry, recovery, tmp_path) -> str:  # noqa: F811
    """The output of the driver's exporter, then that of ``eos recovery metrics``."""
    return (
        generate_latest(registry).decode()
        + recovery("metrics", "--commit-log", tmp_path / "log").raw
    )


@pytest.fixture
def labels(text) -> dict[str, dict[str, set[str]]]:
    """Name of a sample -> its labels -> their values."""
    found: dict[str, dict[str, set[str]]] = {
        name: {label: set() for label in labels} for name, labels in ASKED_FOR.items()
    }
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            values = found.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                values.setdefault(label, set()).add(value)
    return found


def rules() -> list[dict]:
    return [
        rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
    ]


def panels() -> list[dict]:
    return json.loads(DASHBOARD.read_text())["panels"]


def expressions() -> list[str]:
    shown = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [*shown, *(rule["expr"] for rule in rules())]


@pytest.mark.parametrize("expression", expressions())
def test_what_is_asked_for_is_shown_by_that_name_with_these_labels(expression, labels):
    names = set(METRIC.findall(expression)) - NOT_OURS
    assert names or NOT_OURS & set(METRIC.findall(expression))
    assert names <= labels.keys()
    for name, matchers in SELECTOR.findall(expression):
        for label, operator, wanted in MATCHER.findall(matchers):
            if name in NOT_OURS or wanted.startswith("$"):
                continue
            assert label in labels[name]
            values = wanted.split("|") if operator == "=~" else [wanted]
            assert set(values) <= labels[name][label], (name, label)
    for grouped in re.findall(r"by \(([^)]*)\)", expression):
        known = {label for name in names for label in labels[name]} | {"instance"}
        assert set(grouped.replace(",", " ").split()) <= known


def test_every_metric_is_on_the_dashboard(labels):
    shown = {
        name for panel in panels() for t in panel["targets"] for name in METRIC.findall(t["expr"])
    }
    base = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    ours = {re.sub(r"_(bucket|sum|count)$", "", name) for name in labels}
    assert {name for name in ours if not name.endswith("_created")} == base


def test_the_dashboard_is_one_that_grafana_takes():
    dashboard = json.loads(DASHBOARD.read_text())
    assert dashboard["uid"] == "eos-sinks"
    ids = [panel["id"] for panel in panels()]
    assert len(set(ids)) == len(ids)
    cells: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        mine = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & mine, panel["title"]
        assert at["x"] + at["w"] <= 24
        cells |= mine


def test_the_manual_lists_every_alert():
    manual = (HERE / "monitoring.md").read_text()
    assert all(f"| `{rule['alert']}` |" in manual for rule in rules())
    for rule in rules():
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("warning", "critical")


def test_the_formatter_of_the_manual_makes_json_with_the_fields(tmp_path, capfd):
    blocks = re.findall(r"```python\n(.*?)```", (HERE / "monitoring.md").read_text(), re.S)
    (block,) = [one for one in blocks if "class Json" in one]
    scope: dict = {}
    logger = logging.getLogger("eos")
    try:
        exec(block, scope)
        FolderDriver(tmp_path).run("7", ["a"])
        logger.error("it failed", exc_info=ValueError("why"))
    finally:
        logger.removeHandler(scope["handler"])
        logger.setLevel(logging.NOTSET)
    *lines, failure = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert failure["error"] == "ValueError: why"
    assert [line["state"] for line in lines] == ["CLAIMED", "OPEN", "PREPARED", "COMMITTED"]
    assert lines[-1].keys() == {
        *("at", "level", "message", "sink", "query", "epoch", "attempt", "state"),
        *("transaction", "run", "rows", "reason"),
    }


@WITH_TOOL
def test_promtool_takes_the_rules_and_the_metrics(text, registry):
    subprocess.run(["promtool", "check", "rules", ALERTS], check=True)
    lint = subprocess.run(
        ["promtool", "check", "metrics"],
        input=generate_latest(registry),
        capture_output=True,
        check=False,
    )
    assert (lint.returncode, lint.stdout + lint.stderr) == (0, b"")


AGE = "eos_oldest_transaction_age_seconds"
CASES = {
    "EosTransactionInDoubt": {f'{AGE}{{sink="orders",state="in_doubt"}}': "0+60x10"},
    "EosTransactionOpenForLong": {f'{AGE}{{sink="orders",state="open"}}': "0+300x10"},
    "EosEpochNotWritten": {'eos_owed_epochs{sink="orders"}': "1x30"},
    "EosEpochsFail": {'eos_epochs_total{sink="orders",outcome="failed"}': "0 0 1 1 1"},
    "EosAttemptsAborted": {'eos_aborted_attempts_total{sink="orders",reason="poisoned"}': "0+1x40"},
    "EosClaimLost": {'eos_claims_lost_total{sink="orders"}': "0 0 1 1 1"},
    "EosEpochsSlow": {
        'eos_epoch_duration_seconds_bucket{sink="orders",le="300"}': "0x40",
        'eos_epoch_duration_seconds_bucket{sink="orders",le="600"}': "0+1x40",
        'eos_epoch_duration_seconds_bucket{sink="orders",le="+Inf"}': "0+1x40",
    },
    "EosNothingCommitted": {'eos_last_commit_timestamp_seconds{sink="orders"}': "0x80"},
    "EosLogUnreadable": {'eos_log_readable{sink="orders"}': "0x10"},
    "EosMetricsStale": {'node_textfile_mtime_seconds{instance="a",file="/t/eos.prom"}': "0x30"},
}  # fmt: skip
AT = {"EosNothingCommitted": "70m", "EosEpochNotWritten": "20m", "EosEpochsSlow": "30m",
      "EosMetricsStale": "25m", "EosEpochsFail": "4m", "EosClaimLost": "4m",
      "EosTransactionOpenForLong": "9m"}  # fmt: skip


def test_every_alert_has_a_case():
    assert {rule["alert"] for rule in rules()} == CASES.keys()


@WITH_TOOL
@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires_when_it_should_and_not_at_first(alert, tmp_path):
    tests = {
        "rule_files": [str(ALERTS)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": s, "values": v} for s, v in CASES[alert].items()],
                "promql_expr_test": [
                    {
                        "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
                        "eval_time": AT.get(alert, "10m"),
                        "exp_samples": [{"labels": "{}", "value": 1}],
                    },
                    {
                        "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
                        "eval_time": "0m",
                        "exp_samples": [],
                    },
                ],
            }
        ],
    }
    path = tmp_path / "cases.yml"
    path.write_text(yaml.safe_dump(tests))
    done = subprocess.run(
        ["promtool", "test", "rules", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@WITH_TOOL
@pytest.mark.slow
def test_a_real_prometheus_answers_every_question_of_the_dashboard(registry, text, tmp_path):
    server, _ = start_http_server(0, addr="127.0.0.1", registry=registry)
    port = free_port()
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [
            {
                "job_name": "driver",
                "static_configs": [{"targets": [f"127.0.0.1:{server.server_port}"]}],
            }
        ],
    }
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={tmp_path / 'prometheus.yml'}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}/api/v1"
    try:
        wait_until(lambda: len(asked(url, 'eos_epochs_total{outcome="committed"}')) == 1)
        wait_until(lambda: asked(url, "rate(eos_epochs_total[10s])"))
        for panel in panels():
            for target in panel["targets"]:
                expr = target["expr"].replace('"$sink"', '".*"').replace("$__rate_interval", "10s")
                found = asked(url, expr)
                is_of_driver = "From eos recovery" not in panel["description"]
                assert bool(found) == is_of_driver, expr
        (in_doubt,) = asked(url, 'eos_unfinished_transactions{state="in_doubt"}')
        assert in_doubt["value"][1] == "1"
        groups = fetched(f"{url}/rules")["groups"]
        healths = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
        assert healths.keys() == CASES.keys()
        assert set(healths.values()) <= {"ok", "unknown"}
        wait_until(
            lambda: (
                {alert["labels"]["alertname"] for alert in fetched(f"{url}/alerts")["alerts"]}
                >= {"EosEpochNotWritten"}
            )
        )
    finally:
        process.terminate()
        process.wait(30)
        server.shutdown()
        server.server_close()


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def fetched(url: str) -> dict:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.loads(answer.read())["data"]


def asked(url: str, expr: str) -> list[dict]:
    try:
        return fetched(f"{url}/query?{urllib.parse.urlencode({'query': expr})}")["result"]
    except OSError as error:
        if isinstance(error, urllib.error.HTTPError):
            raise
        return []  # the server is still starting


def wait_until(holds) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, sys._getframe(1).f_lineno
        time.sleep(0.2)
