"""``python -m bench.object_server PORT FOLDER``: serves objects as S3 does, at little cost.

``FOLDER/BUCKET/KEY`` is an object, ``FOLDER/latency`` the seconds that each answer waits.
"""

from __future__ import annotations

import os
import re
import sys
import time
import urllib.parse
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

_RANGE: Final = re.compile(r"bytes=(\d+)-(\d*)")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a small body waits 40 ms for the headers' acknowledgement
    folder: Path

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def _answer(self, *, has_body: bool) -> None:
        time.sleep(float((self.folder / "latency").read_text()))
        name = urllib.parse.unquote(self.path.partition("?")[0]).lstrip("/")
        path = self.folder / name
        if not path.is_file():
            self.send_response(HTTPStatus.NOT_FOUND)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        size = path.stat().st_size
        wanted = _RANGE.fullmatch(self.headers.get("Range", ""))
        start = int(wanted[1]) if wanted else 0
        end = min(size, int(wanted[2]) + 1) if wanted and wanted[2] else size
        self.send_response(HTTPStatus.PARTIAL_CONTENT if wanted else HTTPStatus.OK)
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
        self.send_header("Content-Length", str(end - start))
        self.send_header("ETag", f'"{0:032x}"')  # the offloader parses it as an MD5
        self.send_header("Last-Modified", "Thu, 26 Nov 2026 10:00:00 GMT")
        # The broker's offloader asks for it.
        self.send_header("x-amz-meta-s3managedledgeroffloaderformatversion", "1")
        self.end_headers()
        if has_body:
            self.wfile.flush()
            with path.open("rb") as file:
                while start < end:
                    start += os.sendfile(
                        self.connection.fileno(), file.fileno(), start, end - start
                    )

    def log_message(self, *_: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    _Handler.folder = Path(sys.argv[2])
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), _Handler).serve_forever()
