"""A secret as the value of another option is not in an error or a repr."""

from __future__ import annotations

import traceback
from dataclasses import fields

import pytest

from eos.client import PulsarClient
from eos.errors import ConfigurationError, EosError, Unauthorized
from eos.sinks.options import PulsarSinkOptions
from eos.sources._source_options import SourceOptions
from eos.transport.auth import _SECRETS, Auth

TOKEN = ".".join(("eyJhbGciOiJIUzI1NiJ9", "eyJzdWIiOiJzcGFyayJ9", "c2lnbmF0dXJl"))
KEY = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg"
OPAQUE = "Zk3" + "q9XvB7" * 8
PLACES = [one.name for one in fields(Auth) if one.name not in _SECRETS]


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("secret", [TOKEN, f"token:{TOKEN}", f"Bearer {TOKEN}", KEY])
@pytest.mark.parametrize("name", PLACES)
def test_a_token_or_key_in_another_option_is_rejected_and_not_shown(name: str, secret: str) -> None:
    with pytest.raises(ConfigurationError, match="looks like a token or a key") as caught:
        Auth(**{name: secret})
    assert name in str(caught.value)
    assert secret[-10:] not in shown(caught.value)


@pytest.mark.parametrize("secret", [OPAQUE, f"{OPAQUE}=", f"{OPAQUE}/{OPAQUE}", OPAQUE * 200])
def test_a_value_that_does_not_look_like_a_path_is_not_shown(secret: str) -> None:
    with pytest.raises(Unauthorized, match="not shown") as caught:
        Auth(token_file=secret).login.credentials(1)
    assert OPAQUE not in shown(caught.value)
    given = Auth(oauth2_issuer_url="https://issuer", oauth2_credentials_file=secret).login
    with pytest.raises(EosError, match="not shown") as caught:
        given.credentials(1)
    assert OPAQUE not in shown(caught.value)


@pytest.mark.parametrize("path", ["/run/secrets/token", "./token", "~/token", "pulsar.jwt"])
def test_a_path_is_shown(path: str) -> None:
    with pytest.raises(Unauthorized) as caught:
        Auth(token_file=path).login.credentials(1)
    assert path in str(caught.value)


@pytest.mark.parametrize("secret", [TOKEN, KEY])
def test_no_option_of_source_sink_or_client_shows_a_token(secret: str) -> None:
    service = {"service_url": "pulsar://localhost"}
    for name in ("topic", "subscription", "schema", "starting_offsets", "token_file", "history"):
        with pytest.raises(ConfigurationError, match=name) as caught:
            SourceOptions.parse({**service, name: secret})
        assert secret[-10:] not in shown(caught.value)
    for name in ("topic", "sink_id", "commit_log", "compression", "tls_trust_certs_file"):
        with pytest.raises(ConfigurationError, match=name) as caught:
            PulsarSinkOptions.parse({**service, name: secret})
        assert secret[-10:] not in shown(caught.value)
    with pytest.raises(ConfigurationError) as caught:
        PulsarClient(secret)
    assert secret[:10] not in str(caught.value)
