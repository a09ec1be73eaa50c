"""The names of topics in Spark: lower case letters, digits and ``_``."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from eos.ids import TopicName

_OTHER: Final = re.compile(r"[^a-z0-9_]")
_DIGITS: Final = 8
_MAX_CHARS: Final = 60


def database_of(namespace: str) -> str:
    """Return ``public_default`` for ``public/default``."""
    return _plain(namespace)


def table_of(topic: TopicName) -> str:
    """Return ``orders_x`` for ``orders-x``. Two topics may have the same name."""
    return _plain(topic.local)


def source_of(topic: TopicName) -> str:
    """Return the unique name of the topic's data source."""
    digest = hashlib.sha256(str(topic).encode()).hexdigest()[:_DIGITS]
    return f"pulsar_{_plain(topic.local)[:_MAX_CHARS]}_{digest}"


def _plain(name: str) -> str:
    return _OTHER.sub("_", name.lower())
