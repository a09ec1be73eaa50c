"""Options: each wrong value is named, with what is allowed; secrets never show."""

from __future__ import annotations

from pathlib import Path

import mypy.api
import pytest

from eos import Auth, PulsarSink
from eos.errors import ConfigurationError
from eos.sinks.options import DeltaSinkOptions, PulsarSinkArguments, PulsarSinkOptions

ROOT = Path(__file__).parents[2]

GOOD = {
    "sink_id": "orders",
    "service_url": "pulsar://localhost:6650",
    "topic": "persistent://public/default/orders",
    "commit_log": "/data/eos",
}
SECRET = "hunter2-hunter2"


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("sink_id", "a/b", "letters, digits"),
        ("sink_id", "", "at least 1 character"),
        ("service_url", "http://localhost", "pulsar://"),
        ("service_url", "pulsar://me:pw@localhost", "must not contain a user or password"),
        ("service_url", "pulsar://localhost:0", "host:port"),
        ("topic", "non-persistent://public/default/t", "persistent://"),
        ("topic", "a/b", "persistent://tenant/namespace/topic"),
        ("admin_url", "ftp://localhost", "http://host:port"),
        ("on_new_query", "maybe", "'refuse' or 'continue'"),
        ("receipt_namespace", "public", "pattern"),
        ("transaction_ttl_s", 0.5, "greater than or equal to 1"),
        ("transaction_ttl_s", 90000, "less than or equal to 86400"),
        ("max_attempts", 0, "greater than or equal to 1"),
        ("max_batch_bytes", "many", "integer"),
        ("create_topics", "perhaps", "boolean"),
        ("compression", "gzip", "one of auto, none, lz4, zlib, zstd, snappy"),
        ("colour", "red", "options are: "),
        ("encryption_keys", ["orders"], "encryption=Encryption("),
        ("crypto_key_reader", "x", "encryption=Encryption("),
        ("athenz_domain", "x", "Athenz authentication is not supported"),
        ("sasl_jaas_client_section", "x", "Kerberos authentication (SASL) is not supported"),
    ],
)
def test_a_wrong_value_is_named_with_the_allowed_ones(name, value, allowed):
    with pytest.raises(ConfigurationError) as caught:
        PulsarSink(**{**GOOD, name: value})
    assert repr(name) in str(caught.value)
    assert allowed in str(caught.value)


def test_all_wrong_options_are_named_at_once():
    with pytest.raises(ConfigurationError, match=r"'sink_id' is required.*'max_attempts'"):
        PulsarSink(**{**{k: v for k, v in GOOD.items() if k != "sink_id"}, "max_attempts": 0})


@pytest.mark.parametrize(
    ("given", "meant"),
    [("serviceUrl", "service_url"), ("Commit.Log", "commit_log"), ("sink_idd", "sink_id"),
     ("createTopics", "create_topics"), ("null_value", "null_values")],
)  # fmt: skip
def test_a_misspelt_option_is_an_error_with_a_suggestion(given, meant):
    with pytest.raises(ConfigurationError, match=rf"'{given}': did you mean '{meant}'\?"):
        PulsarSink(**GOOD, **{given: "x"})
    if meant in DeltaSinkOptions.model_fields:
        with pytest.raises(ConfigurationError, match=rf"did you mean '{meant}'\?"):
            DeltaSinkOptions.parse({given: "x"})


def test_typed_arguments_match_the_options():
    known = list(PulsarSinkArguments.__annotations__)
    fields = PulsarSinkOptions.model_fields.items()
    assert known == [field.alias or name for name, field in fields]


def test_a_type_checker_finds_a_wrong_name_and_a_wrong_type(tmp_path):
    program = tmp_path / "job.py"
    good = ", ".join(f"{name}={value!r}" for name, value in GOOD.items())
    program.write_text(
        "from eos import PulsarSink\n"
        f"PulsarSink({good})\n"
        f"PulsarSink({good}, sink_idd='x')\n"
        f"PulsarSink({good}, max_attempts='x')\n"
        f"PulsarSink({good.partition(', ')[2]})\n"
    )
    told, _, code = mypy.api.run(["--config-file", str(ROOT / "pyproject.toml"), str(program)])
    errors = [line for line in told.splitlines() if ": error:" in line]
    assert [(line.split(":")[1], line.rsplit("[")[-1]) for line in errors] == [
        ("3", "call-arg]"), ("4", "arg-type]"), ("5", "call-arg]")
    ], told  # fmt: skip
    assert code == 1


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"tls_certificate_file": "/c.pem"}, "belong together"),
        ({"oauth2_issuer_url": "https://issuer"}, "belong together"),
        ({"basic_user": "spark"}, "belong together"),
        ({"token": "a", "token_file": "/b"}, "one authentication method, not token and token_file"),
    ],
)
def test_incomplete_and_conflicting_logins_are_refused(options, match):
    with pytest.raises(ConfigurationError, match=match):
        PulsarSink(**GOOD, auth=Auth(**options))


def test_a_login_option_of_a_sink_names_auth():
    with pytest.raises(ConfigurationError, match=r"'token_file': pass auth=Auth\(token_file=...\)"):
        PulsarSink(**GOOD, token_file="/b")


def test_secrets_are_never_shown():
    storage = {"storage_options": {"secret": SECRET}}
    shown = []
    for login in ({"token": SECRET}, {"basic_user": "spark", "basic_password": SECRET}):
        sink = PulsarSink(**GOOD, **storage, auth=Auth(**login))
        shown += [repr(sink), repr(sink.options), str(sink.options), repr(sink.options.client)]
    for wrong in (
        {"token": [SECRET], "storage_options": SECRET, "basic_password": [SECRET]},
        {"basic_password": SECRET},
        {"basic_user": SECRET, "basic_password": f"a:{SECRET}"},
        {"token": SECRET, "basic_user": "spark", "basic_password": SECRET},
    ):
        for make in (lambda wrong: PulsarSink(**GOOD, **wrong), lambda wrong: Auth(**wrong)):
            with pytest.raises((ConfigurationError, TypeError)) as caught:
                make(wrong)
            shown += [str(caught.value), repr(caught.value)]
    assert not [text for text in shown if SECRET in text]
