"""Forwards S3 requests without ``If-None-Match``, like a store without conditional put.

Run it as a separate process, ``python -m tests.commit_log.careless_s3 PORT UPSTREAM``: the store's
client holds Python's lock while it waits, so a server in the same process would never answer it.
"""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Careless(BaseHTTPRequestHandler):
    upstream = sys.argv[2] if len(sys.argv) > 2 else ""
    protocol_version = "HTTP/1.1"

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {
            name: value
            for name, value in self.headers.items()
            if name.lower() not in ("if-none-match", "host", "content-length", "expect")
        }
        headers.setdefault(
            "Content-Type", "application/octet-stream"
        )  # urllib would call it a form
        request = urllib.request.Request(
            self.upstream + self.path, data=body or None, method=self.command, headers=headers
        )
        try:
            response = urllib.request.urlopen(request, timeout=30)
        except urllib.error.HTTPError as error:
            response = error
        content = response.read()
        self.send_response(response.status)
        for name, value in response.headers.items():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        length = response.headers.get("Content-Length") if self.command == "HEAD" else len(content)
        self.send_header("Content-Length", str(length or 0))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on  # noqa: N815

    def log_message(self, *args: object) -> None:
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), _Careless).serve_forever()
