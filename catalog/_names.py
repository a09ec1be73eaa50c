"""What a topic is called in Spark, whose names are of letters, digits and ``_``, in lower case."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from eos.ids import TopicName

_OTHER: Final = re.compile(r"[^a-z0-9_]")
_DIGITS: Final = 8
_MAX_CHARS: Final = 60


def database_of(namespace: str) -> str:
    """``public_default`` of ``public/default``."""
    return _plain(namespace)


def table_of(topic: TopicName) -> str:
    """``orders_x`` of ``orders-x``. Two topics may have the same: they need names of their own."""
    return _plain(topic.local)


def source_of(topic: TopicName) -> str:
    """What the topic's own data source is called: no other topic's is the same."""
    digest = hashlib.sha256(str(topic).encode()).hexdigest()[:_DIGITS]
    return f"pulsar_{_plain(topic.local)[:_MAX_CHARS]}_{digest}"


def _plain(name: str) -> str:
    return _OTHER.sub("_", name.lower())
