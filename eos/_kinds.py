"""How recovery opens built-in participants. Reading a log imports no client or table library."""

from __future__ import annotations

from typing import Final

from eos.delta.part import DeltaPart
from eos.iceberg.part import IcebergPart
from eos.ids import TopicName
from eos.participant import Access, Kind, Participant
from eos.postgres.part import PostgresPart
from eos.protocol import Part
from eos.pulsar.part import PulsarPart

_CATALOG: Final = "iceberg."
"""Marks a catalog's properties among the storage options: the log has no credentials."""


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


class DeltaKind:
    """The kind ``delta`` of the log."""

    part: type[Part] = DeltaPart

    def open(self, sink_id: str, part: Part, access: Access) -> Participant:
        """Open the participant of the table that ``part`` names."""
        from eos.delta.participant import DeltaParticipant

        assert isinstance(part, DeltaPart)
        return DeltaParticipant(sink_id, part.table, access.storage_options)


class PostgresKind:
    """The kind ``postgres`` of the log."""

    part: type[Part] = PostgresPart

    def open(self, sink_id: str, part: Part, access: Access) -> Participant:  # noqa: ARG002
        """Open the participant of the table that ``part`` names.

        User, password and certificates come from libpq's variables (PGUSER, PGPASSWORD, ...) and
        files, as for ``psql``.
        """
        from eos.postgres.database import recorded_database
        from eos.postgres.participant import PostgresParticipant

        assert isinstance(part, PostgresPart)
        database = recorded_database(part.place)
        return PostgresParticipant(sink_id, database, part.schema, part.table, part.staging_schema)


class IcebergKind:
    """The kind ``iceberg`` of the log."""

    part: type[Part] = IcebergPart

    def open(self, sink_id: str, part: Part, access: Access) -> Participant:
        """Open the participant of the table that ``part`` names.

        Catalog properties come from storage options ``iceberg.*``, else from pyiceberg's own
        configuration for a catalog of this name (``.pyiceberg.yaml``, environment), else from the
        log.

        Raises:
            ConfigurationError: ``pyiceberg`` is not installed.
        """
        from eos.iceberg.table_address import require_pyiceberg

        require_pyiceberg()
        from pyiceberg.utils.config import Config

        from eos.iceberg.participant import IcebergParticipant

        assert isinstance(part, IcebergPart)
        # A log must not choose the server that gets the credentials of this configuration.
        configured = Config().get_catalog_config(part.catalog_name) or {}
        given = {name: str(value) for name, value in configured.items()}
        for name, value in (access.storage_options or {}).items():
            if name.startswith(_CATALOG):
                given[name.removeprefix(_CATALOG)] = value
        return IcebergParticipant(sink_id, part.address(given))


BUILT_IN: Final[dict[str, Kind]] = {
    "pulsar": PulsarKind(),
    "delta": DeltaKind(),
    "postgres": PostgresKind(),
    "iceberg": IcebergKind(),
}
"""By name in the log. They need no metadata of a package: eos also runs from a plain folder."""
