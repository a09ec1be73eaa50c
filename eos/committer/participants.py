"""The participants of one sink, and which of them a part in the log belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from eos.commit_log import CommitLog
from eos.errors import ConfigurationError, EosError, InDoubt
from eos.participant import Access, Kind, Participant, kind_of
from eos.protocol import Key, LogRecord, Part, UnknownPart, check_order


class Participants:
    """Those that a sink writes with, in the order in which they are committed; and those of earlier
    epochs, where there is a way to open them.

    Args:
        log: of the sink.
        own: of the sink as it is now.
        open_other: opens another one by what the log says of it; None: they are not opened.
    """

    def __init__(
        self,
        log: CommitLog,
        own: Iterable[Participant],
        *,
        open_other: Callable[[Part], Participant] | None = None,
    ) -> None:
        self.own = tuple(sorted(own, key=lambda one: not one.can_expire))
        self._log = log
        self._sink_id = log.sink_id
        self._open_other = open_other
        self._by_key: dict[Key, Participant] = {}

    def claim(self) -> tuple[Part, ...]:
        """The parts of a new claim, one for each of ``own``.

        Raises:
            ConfigurationError: they can't be committed all or nothing; says why.
        """
        parts = tuple(one.claimed(self._log.history, self._log.log_table_id) for one in self.own)
        try:
            check_order(parts)
        except ValueError as error:
            raise ConfigurationError(
                f"These outputs can't be written all or nothing: {error}.",
                hint="Write them as two sinks.",
                sink_id=self._sink_id,
            ) from None
        self._by_key = {part.key: one for part, one in zip(parts, self.own, strict=True)}
        if len(self._by_key) < len(parts):
            raise ConfigurationError(
                f"Two of the outputs are one: {', '.join(part.output for part in parts)}.",
                hint="Union the DataFrames, and write them to it once.",
                sink_id=self._sink_id,
            )
        return parts

    def of(self, part: Part) -> Participant:
        """The participant that ``part`` belongs to.

        Raises:
            InDoubt: nobody here can finish it; says who can.
        """
        found = self._by_key.get(part.key)
        if found is not None:
            return found
        if self._open_other is None:
            known_kind(self._sink_id, part)
            raise InDoubt(
                f"An epoch of this sink has a participant {part.kind!r} ({part.identity}) that the "
                "sink does not write with any more.",
                hint=f"Finish it: eos recovery resolve {self._sink_id} --apply. Or write with the "
                "same outputs as before.",
                sink_id=self._sink_id,
            )
        participant = self._open_other(part)
        participant.attach(part, self._log.history)
        self._by_key[part.key] = participant
        return participant

    def maybe_of(self, part: Part) -> Participant | None:
        """As ``of``, for what is only tidied up."""
        try:
            return self.of(part)
        except EosError:
            return None

    def of_record(self, record: LogRecord) -> Iterator[tuple[Part, Participant]]:
        """Each part of ``record`` with its participant.

        Raises:
            InDoubt: see ``of``.
        """
        for part in record.participants:
            yield part, self.of(part)

    def close(self) -> None:
        """Free their connections."""
        for participant in (*self.own, *self._by_key.values()):
            participant.close()


def known_kind(sink_id: str, part: Part) -> Kind:
    """The kind of ``part``, when it is installed here.

    Raises:
        InDoubt: it is not; says how to install it.
    """
    kind = None if isinstance(part, UnknownPart) else kind_of(part.kind)
    if kind is None:
        raise InDoubt(
            f"An epoch of this sink has a participant {part.kind!r} ({part.output}), which is not "
            "installed here.",
            hint="Install the package that brings it (it announces it as an entry point of the "
            "group eos.participants), and run this again.",
            sink_id=sink_id,
        )
    return kind


@contextmanager
def reached(sink_id: str, part: Part, access: Access) -> Iterator[Participant]:
    """``opened``, and closed again."""
    participant = opened(sink_id, part, access)
    try:
        yield participant
    finally:
        participant.close()


def opened(sink_id: str, part: Part, access: Access) -> Participant:
    """The participant that ``part`` belongs to, without Spark.

    Raises:
        InDoubt: it is not installed here.
        ConfigurationError: ``access`` lacks something.
    """
    return known_kind(sink_id, part).open(sink_id, part, access)
