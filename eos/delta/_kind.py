"""How recovery finds the Delta participant."""

from __future__ import annotations

from typing import Final

from eos.delta.part import DeltaPart
from eos.participant import Access, Kind, Participant
from eos.protocol import Part


class DeltaKind:
    """``delta`` in the log."""

    part: type[Part] = DeltaPart

    def open(self, sink_id: str, part: Part, access: Access) -> Participant:
        """The participant of the table that ``part`` names."""
        # Reading a log takes no table.
        from eos.delta.participant import DeltaParticipant

        assert isinstance(part, DeltaPart)
        return DeltaParticipant(sink_id, part.table, access.storage_options)


KIND: Final[Kind] = DeltaKind()
