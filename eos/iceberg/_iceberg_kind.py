"""How recovery finds the Iceberg participant. Its own module: reading a log needs no table."""

from __future__ import annotations

from typing import Final

from eos.iceberg.part import IcebergPart
from eos.iceberg.table_address import require_pyiceberg
from eos.participant import Access, Kind, Participant
from eos.protocol import Part

PREFIX: Final = "iceberg."
"""Marks the catalog's properties among the storage options: the log has no credentials."""


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
        require_pyiceberg()
        from pyiceberg.utils.config import Config

        from eos.iceberg.participant import IcebergParticipant

        assert isinstance(part, IcebergPart)
        # A log must not choose the server that gets the credentials of this configuration.
        configured = Config().get_catalog_config(part.catalog_name) or {}
        given = {name: str(value) for name, value in configured.items()}
        for name, value in (access.storage_options or {}).items():
            if name.startswith(PREFIX):
                given[name.removeprefix(PREFIX)] = value
        return IcebergParticipant(sink_id, part.address(given))


KIND: Final[Kind] = IcebergKind()
