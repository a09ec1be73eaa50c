"""What py4j logs at DEBUG: every call into the JVM, byte arrays as base64. Tasks are such arrays,
and hold what executors log in with."""

from __future__ import annotations

import logging
import re
from typing import Final

_LOGGERS: Final = ("py4j.clientserver", "py4j.java_gateway")
_BYTES: Final = re.compile(r"^j[A-Za-z0-9+/=]+$", re.MULTILINE)  # of py4j's protocol


class _WithoutBytes(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = _BYTES.sub("j<bytes>", record.getMessage()), ()
        return True


_FILTER: Final = _WithoutBytes()


def hide_bytes() -> None:
    """From here on byte arrays are left out of what py4j logs in this process."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)  # once only, however often it is called
