"""On the driver: which partitions there are, and where they end now."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from eos.client import PulsarClient, Tail
from eos.ids import EntryPlace, TopicName
from sources._offsets import EARLIEST, behind, json_object, places_of
from sources._options import SourceOptions

LATEST: Final = "latest"
_ASKED_AT_ONCE: Final = 32


class Planner:
    """Looks at the topics of ``options``. Connections and questions are kept from call to call:
    a partition costs one round trip, and no connection of its own."""

    def __init__(self, options: SourceOptions) -> None:
        self._topics = options.topic_names
        self._client: PulsarClient = options.client.make()
        self._tails: dict[str, Tail] = {}

    def partitions(self) -> list[str]:
        """The exact names of all partitions that there are now.

        Raises:
            TopicNotFound: a topic is not there.
        """
        names: list[TopicName] = []
        for topic in self._topics:
            if topic.partition_index is not None:
                names.append(topic)
            else:
                names += topic.partitions(self._client.partition_count(str(topic)))
        return [str(name) for name in names]

    def ends(self, names: Iterable[str]) -> dict[str, EntryPlace | None]:
        """Behind the last entry of each partition that is readable now.

        Raises:
            EosError: one can't be asked.
        """
        tails = [self._tail(name) for name in names]
        if not tails:
            return {}
        with ThreadPoolExecutor(min(len(tails), _ASKED_AT_ONCE)) as pool:
            last_ids = pool.map(Tail.last_id, tails)
            return {tail.topic: behind(last) for tail, last in zip(tails, last_ids, strict=True)}

    def _tail(self, name: str) -> Tail:
        if name not in self._tails:
            self._tails[name] = self._client.tail(name)
        return self._tails[name]

    def places(self, text: str, option: str) -> dict[str, EntryPlace | None]:
        """The places that an option's text says: earliest, latest or JSON; for all partitions.

        Raises:
            ConfigurationError: it says something else.
        """
        names = self.partitions()
        if text == EARLIEST:
            return dict.fromkeys(names)
        if text == LATEST:
            return self.ends(names)
        return dict.fromkeys(names) | places_of(json_object(text, option), names, option)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()
