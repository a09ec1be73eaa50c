"""Service URLs: valid ones, and errors that do not show a password."""

from __future__ import annotations

import pytest

from eos.errors import ConfigurationError
from eos.transport.address import Address, parse_service_url


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("pulsar://localhost", [Address("localhost", 6650, False)]),
        ("pulsar+ssl://b-1.example.org:7000/", [Address("b-1.example.org", 7000, True)]),
        ("pulsar+ssl://b", [Address("b", 6651, True)]),
        ("pulsar://a:1, b", [Address("a", 1, False), Address("b", 6650, False)]),
        ("pulsar://[::1]:6650", [Address("::1", 6650, False)]),
        ("pulsar://[2001:DB8::1]", [Address("2001:DB8::1", 6650, False)]),
        ("pulsar://[::ffff:127.0.0.1]:1", [Address("::ffff:127.0.0.1", 1, False)]),
        ("pulsar+ssl://[fe80::1%eth0]", [Address("fe80::1%eth0", 6651, True)]),
        ("pulsar://a,[::1]:1", [Address("a", 6650, False), Address("::1", 1, False)]),
    ],
)
def test_a_service_url_names_hosts_and_ports(url, addresses):
    assert list(parse_service_url(url)) == addresses
    for address in addresses:
        assert parse_service_url(str(address)) == (address,)


@pytest.mark.parametrize(
    "url",
    [
        "", "localhost:6650", "http://a:80", "pulsar://", "pulsar://a:0", "pulsar://a:65536",
        "pulsar://a:x", "pulsar://a,,b", "pulsar://a b", "pulsar://a/topic", "pulsar://a:1\n,",
    ],
)  # fmt: skip
def test_an_invalid_service_url_is_rejected(url):
    with pytest.raises(ConfigurationError, match="service_url"):
        parse_service_url(url)


@pytest.mark.parametrize(
    "host",
    ["::1:6650", "[::1", "::1]:1", "[]:1", "[::1::2]:1", "[localhost]:1", "[::1]x", "a,[::1]:0"],
)
def test_a_malformed_ipv6_address_is_rejected_with_an_example(host):
    with pytest.raises(ConfigurationError, match=r"is not host:port\. .*\[::1\]:6650"):
        parse_service_url(f"pulsar://{host}")


@pytest.mark.parametrize("url", ["pulsar://me:hunter2@a:1", "me:hunter2@a:6650", "hunter2@a"])
def test_a_password_in_a_service_url_is_rejected_and_not_quoted(url):
    with pytest.raises(ConfigurationError, match="the authentication options") as caught:
        parse_service_url(url)
    assert "hunter2" not in str(caught.value)


def test_a_query_is_rejected_and_not_quoted():
    for url in ("pulsar://a:1?token=hunter2", "pulsar://a:1/#hunter2", "x?hunter2://"):
        with pytest.raises(ConfigurationError, match="service_url") as caught:
            parse_service_url(url)
        assert "hunter2" not in str(caught.value)
