"""Making a connection: TCP, then TLS where it is asked for, both within one deadline."""

from __future__ import annotations

import socket
import ssl
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from eos.errors import ConfigurationError, ConnectionLost
from eos.transport.address import Address


@dataclass(frozen=True)
class Peer:
    """What is dialled. ``name`` and ``option`` are for errors: what the user calls the peer, and
    the option that names it."""

    host: str
    port: int
    name: str
    option: str

    @classmethod
    def of_broker(cls, address: Address) -> Peer:
        """A broker or proxy, by the binary protocol."""
        return cls(address.host, address.port, str(address), "service_url")


_PORTS: Final = {
    "service_url": "pulsar+ssl:// needs the broker's TLS port (6651), pulsar:// the plain one "
    "(6650).",
    "admin_url": "https:// needs the broker's web port for TLS (8443), http:// the plain one "
    "(8080).",
}


def dial(target: Peer, context: ssl.SSLContext | None, deadline: float) -> socket.socket:
    """A connected socket; with ``context`` the peer's certificate and host name are verified.

    Args:
        deadline: by ``time.monotonic``, for all of it. (Nobody can interrupt the resolver.)

    Raises:
        ConnectionLost: no connection by the deadline.
        ConfigurationError: the peer's certificate can't be verified.
    """
    try:
        sock = _connect(target, deadline)
    except (OSError, UnicodeError) as error:  # a host name that can't be one is a UnicodeError
        raise ConnectionLost(f"Can't connect to {target.name}: {error}.") from error
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            sock.settimeout(_left(deadline))
            sock = context.wrap_socket(sock, server_hostname=target.host)
        return sock
    except ssl.SSLCertVerificationError as error:
        sock.close()
        raise _unverified(target, error) from error
    except (OSError, ValueError) as error:  # a host name that TLS can't take is a ValueError
        sock.close()
        raise ConnectionLost(
            f"Can't speak TLS to {target.name}: {error}.",
            hint=f"Check that the broker runs, and its port: {_PORTS[target.option]}",
        ) from error
    except BaseException:
        sock.close()
        raise


def _connect(target: Peer, deadline: float) -> socket.socket:
    found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    last: OSError = OSError("the name has no address")
    for number, (family, kind, protocol, _, address) in enumerate(found):
        try:
            sock = socket.socket(family, kind, protocol)
        except OSError as error:
            last = error
            continue
        try:
            # An address that is silent leaves time for those after it.
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


def _unverified(target: Peer, error: ssl.SSLCertVerificationError) -> ConfigurationError:
    hint = "Set tls_trust_certs_file to the PEM file of the authority that signed it."
    if "mismatch" in error.verify_message:
        hint = f"Use a host name in {target.option} that the certificate holds."
    elif "expired" in error.verify_message or "not yet valid" in error.verify_message:
        # Python does not tell which certificate of the chain it is, nor its dates.
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        hint = (
            f"Here it is {now}. If that is right, the certificate, or the authority's that signed "
            "it, has to be renewed."
        )
    return ConfigurationError(
        f"The certificate of {target.name} can't be verified: {error.verify_message}.", hint=hint
    )
