"""``python -m examples.past.s3_server PORT``: moto's S3 server, one request at a time.

moto checks whether an object exists, and then puts it. So two concurrent conditional puts may both
succeed (seen on a busy machine), which never happens in S3.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import BaseWSGIServer, make_server


class _S3(DomainDispatcherApplication):
    # moto takes the service's name from the signature. The broker's offloader signs by the old
    # version, whose base64 has four slashes in one of 1,400 requests, and is then another service
    # that does not exist. A repetition in the same second has the same signature.
    def infer_service_region_host(self, *_: Any) -> None:
        """Return None, which is S3."""


_turn = threading.Lock()
_moto = _S3(create_backend_app)


def _one_by_one(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    with _turn:
        answer: Iterable[bytes] = _moto(environ, start_response)
        return answer


def s3_server(port: int = 0) -> BaseWSGIServer:
    """Return the server; without ``port`` at a free one. It serves by ``serve_forever``."""
    return make_server("127.0.0.1", port, _one_by_one, threaded=True)


if __name__ == "__main__":
    s3_server(int(sys.argv[1])).serve_forever()
