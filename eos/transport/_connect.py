"""Opens connections: TCP, then TLS if requested, both within one deadline."""

from __future__ import annotations

import socket
import ssl
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from eos.errors import Unreachable, Untrusted
from eos.transport.address import Address


@dataclass(frozen=True)
class Peer:
    """The other end of a connection. Errors call it ``name`` and refer to ``option``, which
    configures it."""

    host: str
    port: int
    name: str
    option: str

    @classmethod
    def of_broker(cls, address: Address) -> Peer:
        """A broker or proxy, by the binary protocol."""
        return cls(address.host, address.port, str(address), "service_url")


@dataclass(frozen=True)
class _Advice:
    """Hints for connection errors, by the option that configures the peer."""

    check: str
    ports: str
    trust_option: str


_ADVICE: Final = {
    "service_url": _Advice(
        check="Check that the broker runs and that the service URL is right.",
        ports="pulsar+ssl:// needs the broker's TLS port (6651), pulsar:// the plain one (6650).",
        trust_option="tls_trust_certs_file",
    ),
    "admin_url": _Advice(
        check="Check that the broker runs and that the admin URL is right.",
        ports="https:// needs the broker's web port for TLS (8443), http:// the plain one (8080).",
        trust_option="tls_trust_certs_file",
    ),
    "oauth2_issuer_url": _Advice(
        check="Check that the token server runs and that oauth2_issuer_url is right.",
        ports="oauth2_issuer_url needs the token server's TLS port.",
        trust_option="oauth2_trust_certs_file",
    ),
}


def connect(target: Peer, context: ssl.SSLContext | None, deadline: float) -> socket.socket:
    """Return a connected socket; with ``context`` verify the peer's certificate and host name.

    Args:
        deadline: in ``time.monotonic`` time, for the whole call. Name resolution can't be
            interrupted and may exceed it.

    Raises:
        Unreachable: no connection by the deadline.
        Untrusted: the peer's certificate can't be verified.
    """
    try:
        sock = _connect_tcp(target, deadline)
    except (OSError, UnicodeError) as error:  # an invalid host name is a UnicodeError
        raise Unreachable(
            f"Can't connect to {target.name}: {error}.", hint=_ADVICE[target.option].check
        ) from error
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            sock.settimeout(_left(deadline))
            sock = context.wrap_socket(sock, server_hostname=target.host)
        return sock
    except ssl.SSLCertVerificationError as error:
        sock.close()
        raise _unverified(target, error) from error
    except (OSError, ValueError) as error:  # a host name that TLS does not allow is a ValueError
        sock.close()
        raise Unreachable(
            f"The TLS handshake with {target.name} failed: {error}.",
            hint=f"Check that it runs, and its port: {_ADVICE[target.option].ports}",
        ) from error
    except BaseException:
        sock.close()
        raise


def _connect_tcp(target: Peer, deadline: float) -> socket.socket:
    found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    last: OSError = OSError("the name has no address")
    for number, (family, kind, protocol, _, address) in enumerate(found):
        try:
            sock = socket.socket(family, kind, protocol)
        except OSError as error:
            last = error
            continue
        try:
            # The remaining time is shared, so an unreachable address leaves time for the others.
            sock.settimeout(_left(deadline) / (len(found) - number))
            sock.connect(address)
            return sock
        except OSError as error:
            last = error
            sock.close()
        except BaseException:
            sock.close()
            raise
    raise last


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)


def _unverified(target: Peer, error: ssl.SSLCertVerificationError) -> Untrusted:
    trust_option, reason = _ADVICE[target.option].trust_option, error.verify_message.rstrip(".")
    hint = f"Set {trust_option} to the PEM file of the authority that signed it."
    if "mismatch" in error.verify_message:
        hint = f"Use a host name in {target.option} that the certificate contains."
    elif "expired" in error.verify_message or "not yet valid" in error.verify_message:
        # Python does not say which certificate of the chain it is, or its dates.
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        hint = (
            f"The local time is {now}. If it is right, renew the certificate, or that of the "
            "authority that signed it."
        )
    return Untrusted(f"The certificate of {target.name} can't be verified: {reason}.", hint=hint)
