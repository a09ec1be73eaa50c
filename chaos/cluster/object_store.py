"""An S3 server for tiered storage, which can answer readers wrongly.

It has what brokers' offloader and readers of its objects need: one bucket, uploads in parts, and
reads of ranges. The offloader itself always gets right answers.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, Self
from unittest.mock import patch
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import unescape

from eos.testing import offloading_to_s3

_BUCKET: Final = "cold"
_RANGE: Final = re.compile(r"bytes=(\d+)-(\d*)")
_KEY: Final = re.compile(r"<Key>([^<]*)</Key>")
_BROKER_AGENT: Final = "jclouds"


@dataclass(frozen=True)
class ObjectAnswer:
    """How a reader's request is answered."""

    data: bytes | None  # the whole object; None if there is none
    delay_s: float = 0.0
    is_busy: bool = False  # 503 instead
    is_cut: bool = False  # the connection ends in the middle of the bytes


AnswerRule = Callable[[str, ObjectAnswer], ObjectAnswer]


class ObjectStore:
    """The server, in threads, and its objects in a folder; a context manager.

    Meanwhile the environment of this process, which brokers and drivers inherit, has its keys.
    Brokers run in a JVM: the offloader is on this machine.
    """

    url: Final = f"s3://{_BUCKET}"

    def __init__(self) -> None:
        self.reads = 0  # the answers that readers other than brokers got in this run
        self.rule: AnswerRule | None = None
        self.comes_first = True  # whether inputs are here before they are readable
        self._folder = Path(tempfile.mkdtemp(prefix="eos-chaos-store-"))
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.store = self
        self._endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        keys = ("eos", "chaos")
        given = dict(zip(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), keys, strict=True))
        given |= dict(zip(("ACCESS_KEY_ID", "ACCESS_KEY_SECRET"), keys, strict=True))
        given |= {"AWS_ENDPOINT_URL": self._endpoint, "AWS_REGION": "us-east-1"}
        given["EOS_BROKER"] = "maven"
        self._environment = patch.dict(os.environ, given)
        self._environment.start()
        threading.Thread(target=self._server.serve_forever, name="store", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._environment.stop()
        self._server.shutdown()
        self._server.server_close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def broker_config(self) -> dict[str, str]:
        """Settings of a broker that can offload ledgers to the store.

        Raises:
            ConfigurationError: Maven can't resolve the offloader.
        """
        # It reads its own copy: a damaged object must not be the only one.
        own_copy = {"managedLedgerDataReadPriority": "bookkeeper-first"}
        return offloading_to_s3(self._endpoint, _BUCKET, self._folder) | own_copy

    @contextmanager
    def fault(self, rule: AnswerRule) -> Iterator[None]:
        """Pass each answer to a reader through ``rule`` while the block runs."""
        self.rule = rule
        try:
            yield
        finally:
            self.rule = None

    def names(self) -> list[str]:
        """The names of all objects."""
        return [path.name for path in self._folder.iterdir() if path.is_file()]

    def read(self, name: str) -> bytes | None:
        """The bytes of an object; None if there is none."""
        path = self.path(name)
        return path.read_bytes() if path.is_file() else None

    def path(self, name: str) -> Path:
        """The file of an object, or of a part of one."""
        return self._folder / name.replace("/", "_")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    store: ObjectStore


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_HEAD(self) -> None:
        self._read(has_body=False)

    def do_GET(self) -> None:
        self._read(has_body=True)

    def do_PUT(self) -> None:
        body = self._body()
        part = self._query.get("partNumber")
        path = self.server.store.path(f"{self._query['uploadId']}.{part}" if part else self._name)
        path.with_suffix(".draft").write_bytes(body)
        path.with_suffix(".draft").rename(path)
        self._answer(HTTPStatus.OK, ETag=_tag(body))

    def do_POST(self) -> None:
        body = self._body().decode()
        if "delete" in self._query:
            for key in _KEY.findall(body):
                self.server.store.path(unescape(key)).unlink(missing_ok=True)
            self._say("<DeleteResult/>")
            return
        if "uploads" in self._query:
            self._say(
                f"<InitiateMultipartUploadResult><UploadId>{uuid.uuid4().hex}</UploadId>"
                "</InitiateMultipartUploadResult>"
            )
            return
        store, upload, count = self.server.store, self._query["uploadId"], 0
        draft = store.path(f"{upload}.whole")
        with draft.open("wb") as whole:
            while (part := store.path(f"{upload}.{count + 1}")).exists():
                whole.write(part.read_bytes())
                part.unlink()
                count += 1
        draft.rename(store.path(self._name))
        tag = _tag(upload.encode())
        self._say(
            f"<CompleteMultipartUploadResult><ETag>{tag}</ETag></CompleteMultipartUploadResult>"
        )

    def do_DELETE(self) -> None:
        self.server.store.path(self._name).unlink(missing_ok=True)
        self._answer(HTTPStatus.NO_CONTENT)

    @property
    def _name(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix(f"/{_BUCKET}").lstrip("/")

    @property
    def _query(self) -> dict[str, str]:
        found = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        return {name: values[0] for name, values in found.items()}

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _read(self, *, has_body: bool) -> None:
        store, name = self.server.store, self._name
        answer = ObjectAnswer(b"" if not name else store.read(name))
        if name and _BROKER_AGENT not in self.headers.get("User-Agent", ""):
            store.reads += 1
            answer = store.rule(name, answer) if store.rule else answer
        time.sleep(answer.delay_s)
        if answer.is_busy or answer.data is None:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE if answer.is_busy else HTTPStatus.NOT_FOUND)
            return
        size = len(answer.data)
        wanted = _RANGE.fullmatch(self.headers.get("Range", ""))
        start = int(wanted[1]) if wanted else 0
        end = min(size, int(wanted[2]) + 1) if wanted and wanted[2] else size
        if start > 0 and start >= size:
            self._answer(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
            return
        more = {"Content-Range": f"bytes {start}-{end - 1}/{size}"} if wanted else {}
        status = HTTPStatus.PARTIAL_CONTENT if wanted else HTTPStatus.OK
        self._answer(status, end - start, ETag=_tag(name.encode()), **more)
        if has_body:
            sent = (end - start) // 2 if answer.is_cut else end - start
            self.wfile.write(answer.data[start : start + sent])
            self.close_connection |= answer.is_cut

    def _say(self, text: str) -> None:
        self._answer(HTTPStatus.OK, len(text), **{"Content-Type": "application/xml"})
        self.wfile.write(text.encode())

    def _answer(self, status: HTTPStatus, size: int = 0, **more: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(size))
        self.send_header("Last-Modified", self.date_time_string())
        # The offloader asks for it.
        self.send_header("x-amz-meta-s3managedledgeroffloaderformatversion", "1")
        for name, value in more.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write no log."""


def _tag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'
