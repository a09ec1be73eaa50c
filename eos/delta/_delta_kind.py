"""How recovery finds the Delta participant. Its own module: reading a log needs no table."""

from __future__ import annotations

from typing import Final

from eos.delta.part import DeltaPart
from eos.participant import Access, Kind, Participant
from eos.protocol import Part


class DeltaKind:
    """The kind ``delta`` of the log."""

    part: type[Part] = DeltaPart

    def open(self, sink_id: str, part: Part, access: Access) -> Participant:
        """Open the participant of the table that ``part`` names."""
        from eos.delta.participant import DeltaParticipant

        assert isinstance(part, DeltaPart)
        return DeltaParticipant(sink_id, part.table, access.storage_options)


KIND: Final[Kind] = DeltaKind()
