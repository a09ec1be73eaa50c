"""The participants of one sink, and the participant of each part in the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, cast

from eos.commit_log import CommitLog
from eos.errors import ConfigurationError, EosError, InDoubt, named
from eos.participant import Access, Kind, Participant, kind_of
from eos.protocol import LogRecord, Part, ParticipantKey, UnknownPart, check_order, recovery_command


class Participants:
    """The sink's participants in the order in which they are committed, and, if they can be opened,
    those of earlier epochs.

    Args:
        log: the sink's log.
        own: the sink's present outputs.
        open_other: opens another participant for a part in the log; None: they are not opened.
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
        self._by_key: dict[ParticipantKey, Participant] = {}

    def claim(self) -> tuple[Part, ...]:
        """Return the parts of a new claim, one for each of ``own``.

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
        for part in parts:
            # Before the first record: a part of an unknown kind can't be read back. One that was
            # read as unknown can: that of an output which a person gives up.
            if not isinstance(part, UnknownPart) and kind_of(part.kind) is None:
                raise ConfigurationError(
                    f"The output {part.output} is of kind {part.kind!r}, which no installed "
                    "package declares.",
                    hint="Declare it as an entry point of the group eos.participants: the driver "
                    "and eos recovery read the log by it.",
                    sink_id=self._sink_id,
                )
        self._by_key = {part.key: one for part, one in zip(parts, self.own, strict=True)}
        if len(self._by_key) < len(parts):
            raise self._same_target(parts)
        return parts

    def check_targets(self, parts: tuple[Part, ...]) -> None:
        """Check, after ``claim``, that the targets are different ones by any of their names.

        Raises:
            ConfigurationError: two are one: the second would take the first's commit for its own.
        """
        if len(parts) > 1:
            pairs = zip(parts, self.own, strict=True)
            ids = [(part.kind, one.target_id()) for part, one in pairs]
            if any(found[1] is not None and ids.count(found) > 1 for found in ids):
                raise self._same_target(parts)

    def _same_target(self, parts: tuple[Part, ...]) -> ConfigurationError:
        return ConfigurationError(
            f"Two outputs write to the same target: {', '.join(part.output for part in parts)}.",
            hint="Union the DataFrames, and write them to it once.",
            sink_id=self._sink_id,
        )

    def of(self, part: Part) -> Participant:
        """Return the participant that ``part`` belongs to.

        Raises:
            InDoubt: it can't be finished here; says how it can.
        """
        found = self._by_key.get(part.key)
        if found is not None:
            return found
        if self._open_other is None:
            require_kind(self._sink_id, part)
            raise InDoubt(
                f"An epoch of this sink has a participant {part.kind!r} ({part.identity}) that the "
                "sink no longer writes with.",
                hint="Write with the same outputs as before, or finish it: "
                + recovery_command("resolve", self._sink_id, "--apply"),
                sink_id=self._sink_id,
            )
        participant = self._open_other(part)
        participant.attach(part, self._log.history)
        self._by_key[part.key] = participant
        return participant

    def find(self, part: Part) -> Participant | None:
        """As ``of``, but None if there is none: for optional work."""
        try:
            return self.of(part)
        except EosError:
            return None

    def of_record(self, record: LogRecord) -> Iterator[tuple[Part, Participant]]:
        """Yield each part of ``record`` with its participant; raises as ``of``."""
        for part in record.participants:
            yield part, self.of(part)

    def close(self) -> None:
        """Close all participants."""
        for participant in (*self.own, *self._by_key.values()):
            participant.close()


def require_kind(sink_id: str, part: Part) -> Kind:
    """Return the kind of ``part``.

    Raises:
        InDoubt: it is not installed here; says how to install it.
    """
    kind = None if isinstance(part, UnknownPart) else kind_of(part.kind)
    if kind is None:
        command = recovery_command("resolve", sink_id, "--give-up", part.output, "--apply")
        give_up = f" If it is gone for good: {command}"
        raise InDoubt(
            f"An epoch of this sink has a participant {part.kind!r} ({part.output}), which is not "
            "installed here.",
            hint="Install its package (which declares it as an entry point of the group "
            "eos.participants), and run this again." + ("" if part.can_expire else give_up),
            sink_id=sink_id,
        )
    return kind


@contextmanager
def opened(sink_id: str, part: Part, access: Access) -> Iterator[Participant]:
    """As ``open_participant``, but closed at the end of the block."""
    participant = open_participant(sink_id, part, access)
    try:
        yield participant
    finally:
        participant.close()


def open_participant(sink_id: str, part: Part, access: Access) -> Participant:
    """Open the participant that ``part`` belongs to, without Spark.

    Its methods raise errors of ``eos.errors`` only: InDoubt for any other.

    Raises:
        InDoubt: it is not installed here, or fails.
        ConfigurationError: ``access`` lacks something.
    """
    with _failures(sink_id, part):
        opened = require_kind(sink_id, part).open(sink_id, part, access)
    return cast("Participant", _Named(opened, partial(_failures, sink_id, part)))


@contextmanager
def _failures(sink_id: str, part: Part) -> Iterator[None]:
    try:
        yield
    except EosError:
        raise
    except Exception as error:  # of another package
        raise InDoubt(
            f"The participant {part.kind!r} of {part.output} failed: {named(error)}.",
            hint="Fix or update its package, and run this again.",
            sink_id=sink_id,
        ) from error


class _Named:
    """A participant whose unexpected errors name it."""

    def __init__(
        self, participant: Participant, failures: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._participant = participant
        self._failures = failures

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._participant, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            with self._failures():
                return found(*arguments, **options)

        return call
