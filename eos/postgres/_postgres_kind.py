"""How recovery finds the PostgreSQL participant. Its own module: reading a log needs no psycopg."""

from __future__ import annotations

from typing import Final

from eos.participant import Access, Kind, Participant
from eos.postgres.part import PostgresPart
from eos.protocol import Part


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


KIND: Final[Kind] = PostgresKind()
