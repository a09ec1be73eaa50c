"""``python -m tests.support.s3_server PORT``: moto's S3 server, one request at a time.

moto checks whether an object exists, and then puts it. So two concurrent conditional puts may both
succeed (seen on a busy machine), which never happens in S3.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

_turn = threading.Lock()
_moto = DomainDispatcherApplication(create_backend_app)


def _one_by_one(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    with _turn:
        answer: Iterable[bytes] = _moto(environ, start_response)
        return answer


if __name__ == "__main__":
    run_simple("127.0.0.1", int(sys.argv[1]), _one_by_one, threaded=True)
