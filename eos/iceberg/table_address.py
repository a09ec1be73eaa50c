"""The address of a table: its catalog, name and branch. Needs no ``pyiceberg``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Final

from eos.errors import ConfigurationError, pip_install

MAIN: Final = "main"
"""The branch that readers see by default."""

# Catalog properties that a log may hold. Others may be credentials, or name Python classes
# (``py-catalog-impl``), which no file should choose.
_RECORDED: Final = (
    "type", "uri", "warehouse", "prefix",
    "s3.endpoint", "s3.region", "s3.force-virtual-addressing", "client.region",
    "glue.id", "glue.region", "glue.endpoint", "adls.account-name", "gcs.project-id",
)  # fmt: skip
# SQLAlchemy takes passwords with a slash or another @ in them.
_CREDENTIALS: Final = re.compile(r"://[^/?#@]*(?::.*)?@|[?#]")
_IDENTIFIER: Final = re.compile(r"[^\s.]+(?:\.[^\s.]+)+")
_TRANSFORM: Final = re.compile(
    r"(?P<name>year|month|day|hour|identity)\(\s*(?P<column>[^()\s][^()]*)\)"
    r"|(?P<sized>bucket|truncate)\(\s*(?P<size>[1-9]\d{0,8})\s*,\s*(?P<of>[^()\s][^()]*)\)"
    r"|(?P<plain>[^()]+)"
)


@dataclass(frozen=True)
class TableAddress:
    """A table in a catalog.

    Attributes:
        table: ``namespace.name``.
        catalog_name: also the name under which ``pyiceberg`` looks for more properties, in
            ``.pyiceberg.yaml`` and ``PYICEBERG_CATALOG__NAME__...``.
        properties: of the catalog, as for ``pyiceberg``; may hold credentials.
    """

    table: str
    catalog_name: str = "default"
    branch: str = MAIN
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def identity(self) -> str:
        """``catalog.namespace.name``, as in Spark's SQL."""
        return f"{self.catalog_name}.{self.table}"

    @property
    def recorded(self) -> dict[str, str]:
        """The properties for a log: none with a credential in it."""
        return {
            name: value for name, value in self.properties.items() if may_be_recorded(name, value)
        }


def may_be_recorded(name: str, value: str) -> bool:
    """Whether a log may hold this property: no URL with a user, a query or a fragment."""
    return name in _RECORDED and _CREDENTIALS.search(value) is None


def check_table_name(name: str) -> str:
    """Return ``name`` if it is ``namespace.name``.

    Raises:
        ConfigurationError: it is not.
    """
    if not _IDENTIFIER.fullmatch(name) or not name.isprintable():
        raise ConfigurationError(
            f"Iceberg table {name[:200]!r}: not a namespace and a name.",
            hint="Write namespace.name, for example sales.orders.",
        )
    return name


def parse_partition_field(text: str) -> tuple[str, str]:
    """Parse ``bucket(16, id)`` to ``("bucket[16]", "id")``, as ``pyiceberg`` names transforms.

    Raises:
        ConfigurationError: it is not a transform of a column.
    """
    found = _TRANSFORM.fullmatch(text.strip())
    if found is None:
        raise ConfigurationError(
            f"{text[:200]!r} is not a transform of a column.",
            hint="Write id, year(ts), month(ts), day(ts), hour(ts), bucket(16, id) or "
            "truncate(4, name).",
        )
    if found["sized"]:
        return f"{found['sized']}[{found['size']}]", found["of"].strip()
    return found["name"] or "identity", (found["column"] or found["plain"]).strip()


def require_pyiceberg() -> None:
    """Check that ``pyiceberg`` is installed.

    Raises:
        ConfigurationError: it is not.
    """
    # Not imported: that takes half a second.
    if find_spec("pyiceberg") is None:
        raise ConfigurationError(
            "Iceberg tables need the package pyiceberg, which is not installed here.",
            hint=f"Run: {pip_install('iceberg')}.",
        )
