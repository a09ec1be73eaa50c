"""The server, as fixtures."""

from tests.support.postgres import postgres_server, shop  # noqa: F401 - fixtures
