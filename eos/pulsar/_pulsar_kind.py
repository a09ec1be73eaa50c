"""How recovery finds the Pulsar participant. Its own module: reading a log needs no client."""

from __future__ import annotations

from typing import Final

from eos.ids import TopicName
from eos.participant import Access, Kind, Participant
from eos.protocol import Part
from eos.pulsar.part import PulsarPart


class PulsarKind:
    """The kind ``pulsar`` of the log."""

    part: type[Part] = PulsarPart

    def open(self, sink_id: str, part: Part, access: Access) -> Participant:
        """Open the participant of a log, at the cluster of ``access`` or the recorded one."""
        from eos.pulsar.participant import PulsarParticipant

        assert isinstance(part, PulsarPart)
        return PulsarParticipant(
            sink_id,
            access.service_url or part.service_url,
            access.auth,
            rules=access.rules,
            receipt_namespace=TopicName.parse(part.receipt_topic).namespace_name,
            admin_url=access.admin_url,
            timeout_s=access.timeout_s,
        )


KIND: Final[Kind] = PulsarKind()
