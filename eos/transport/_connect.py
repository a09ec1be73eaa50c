"""Opens connections: TCP, then TLS if requested, both within one deadline; the TLS contexts."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import ssl
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

from eos.errors import Unreachable, Untrusted

_SYSTEM_BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Red Hat
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # BSD, macOS
)


def trust_file(chosen: str | None) -> str | None:
    """Return the PEM file of the authorities to trust: ``chosen``, else that of ``SSL_CERT_FILE``,
    else the system's; None if only ``SSL_CERT_DIR`` is set, or no file was found."""
    # Not left to each library's default: that of pulsar-client differs from OpenSSL's.
    if known := chosen or os.environ.get("SSL_CERT_FILE"):
        return known
    if os.environ.get("SSL_CERT_DIR"):  # pulsar-client ignores it
        return None
    # OpenSSL may have been built with other default paths than the system's.
    bundles = (ssl.get_default_verify_paths().cafile, *_SYSTEM_BUNDLES)
    return next((file for file in bundles if file and Path(file).is_file()), None)


def verifying_context(trust_certs_file: str | None) -> ssl.SSLContext:
    """Return a context that verifies the peer's certificate and host name, for TLS 1.2 and newer.

    Raises:
        OSError: the file of the authorities can't be loaded.
    """
    context = ssl.create_default_context(cafile=trust_file(trust_certs_file))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


# A name may have several addresses. The next one is tried after this time, or if the one before
# fails; the first that answers is used (as in RFC 8305).
_HEAD_START_S: Final = 0.25


@dataclass(frozen=True)
class Peer:
    """The other end of a connection: ``name`` and the ``option`` that configures it, for errors."""

    host: str
    port: int
    name: str
    option: str


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
    "key_location": _Advice(
        check="Check that the server of the keys runs and that key_location is right.",
        ports="key_location needs the server's TLS port.",
        trust_option="SSL_CERT_FILE",
    ),
    "oauth2_issuer_url": _Advice(
        check="Check that the token server runs and that oauth2_issuer_url is right.",
        ports="oauth2_issuer_url needs the token server's TLS port.",
        trust_option="oauth2_trust_certs_file",
    ),
}


def connect(target: Peer, context: ssl.SSLContext | None, deadline: float) -> socket.socket:
    """Return a connected socket; with ``context`` verify the peer's certificate and host name.

    ``deadline``: by ``time.monotonic``, for the whole call.

    Raises:
        Unreachable: no connection by the deadline.
        Untrusted: the peer's certificate can't be verified.
    """
    try:
        sock = _connect_tcp(target, deadline)
    except socket.gaierror as error:
        raise Unreachable(
            f"Can't connect to {target.name}: its host name can't be resolved: {error.strerror}.",
            hint=f"Check the name in {target.option}, and this machine's DNS.",
        ) from error
    except (OSError, UnicodeError) as error:  # an invalid host name is a UnicodeError
        raise Unreachable(
            f"Can't connect to {target.name}: {error}.", hint=_ADVICE[target.option].check
        ) from error
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(_left(deadline))
        if context is not None:
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
    # Name resolution can't be interrupted, and may exceed the deadline.
    found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    errors: dict[str, OSError] = {}
    with selectors.DefaultSelector() as attempts:
        try:
            for family, kind, protocol, _, address in found:
                host = str(address[0])
                try:
                    _begin(attempts, socket.socket(family, kind, protocol), address, host)
                except OSError as error:
                    errors[host] = error
                    continue
                # An address that does not answer delays the next one by this time only.
                until = min(deadline, time.monotonic() + _HEAD_START_S)
                if connected := _first_connected(attempts, until, errors):
                    return connected
            if connected := _first_connected(attempts, deadline, errors):
                return connected
            for key in attempts.get_map().values():
                errors[key.data] = TimeoutError("timed out")
        finally:
            for key in attempts.get_map().values():
                cast("socket.socket", key.fileobj).close()
    if len(errors) == 1:
        raise next(iter(errors.values()))
    raise OSError("; ".join(f"{host}: {error}" for host, error in errors.items()))


def _begin(attempts: selectors.BaseSelector, sock: socket.socket, address: Any, host: str) -> None:
    """Add ``sock`` to ``attempts``, and begin to connect it without waiting."""
    try:
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            sock.connect(address)
        attempts.register(sock, selectors.EVENT_WRITE, host)
    except BaseException:
        sock.close()
        raise


def _first_connected(
    attempts: selectors.BaseSelector, until: float, errors: dict[str, OSError]
) -> socket.socket | None:
    """Take the first connected socket from ``attempts``; None if there is none by ``until``."""
    while attempts.get_map():
        ready = attempts.select(_left(until))
        for key, _ in ready:
            sock = cast("socket.socket", key.fileobj)
            attempts.unregister(sock)
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code == 0:
                return sock
            sock.close()
            errors[key.data] = OSError(code, os.strerror(code))
        if not ready and time.monotonic() >= until:
            return None
    return None


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
