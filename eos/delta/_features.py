"""Decides whether a Delta table can be appended to, from what it requires of its writers.

``deltalake`` 1.6 refuses the commit if it does not know a feature: too late, because by then the
epoch is decided. And it silently commits files that violate a check constraint, an invariant, a
generated column or the names of a column mapping: it leaves these checks to its callers. So both
are checked before a row is written. Measured, see docs/facts.md.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from deltalake import DeltaTable

from eos.delta import opening
from eos.delta._partitions import can_partition
from eos.delta.column_rules import unsupported_length

_KNOWN: Final = {
    "appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "deletionVectors",
    "generatedColumns", "invariants", "timestampNtz", "v2Checkpoint", "variantType",
    "variantType-preview",
}  # fmt: skip
"""Features that ``deltalake`` commits to, and those that matter to an append only if a column or a
property uses them: these are checked one by one."""
_IDENTITY_VERSION: Final = 6
_FEATURES_VERSION: Final = 7
"""``minWriterVersion`` with identity columns, and the one that lists features by name."""
_COLUMN_RULES: Final = {
    "delta.generationExpression": "generated column",
    "delta.invariants": "invariant of column",
    "delta.identity.start": "identity column",
}


TXN_RETENTION: Final = "delta.setTransactionRetentionDuration"
MIN_TXN_RETENTION_DAYS: Final = 30
"""How long an epoch may be in doubt. An expired identifier looks like a commit that never happened,
and would be committed again."""
_UNIT_DAYS: Final = {"second": 1 / 86_400, "minute": 1 / 1440, "hour": 1 / 24, "day": 1, "week": 7}


def unsupported_features(table: DeltaTable) -> list[str]:
    """List the table's requirements that an append of files can't meet; [] if it can be appended
    to."""
    protocol, metadata = table.protocol(), table.metadata()
    found = find_unsupported(
        protocol.min_writer_version,
        [*(protocol.writer_features or ()), *(protocol.reader_features or ())],
        metadata.configuration,
        table.schema().to_json(),
    )
    if found:
        return found
    schema = opening.arrow_schema(table)
    return [
        f"partition column {name} ({schema.field(name).type})"
        for name in metadata.partition_columns
        if not can_partition(schema.field(name).type)
    ]


def find_unsupported(
    writer_version: int,
    features: Collection[str],
    configuration: Mapping[str, str],
    schema_json: str,
) -> list[str]:
    """List the requirements that an append of files can't meet; [] if the table can be appended to.

    Args:
        writer_version: ``minWriterVersion`` of the table's protocol.
        features: its writer and reader features, if it lists them.
        configuration: the table's properties.
        schema_json: the table's schema as in the Delta log.
    """
    found = [f"table feature {name}" for name in sorted(set(features) - _KNOWN)]
    if writer_version == _IDENTITY_VERSION:
        found.append("identity columns (writer version 6)")
    elif writer_version > _FEATURES_VERSION:
        found.append(f"writer version {writer_version}")
    mode = configuration.get("delta.columnMapping.mode", "none")
    if mode != "none":
        found.append(f"column mapping by {mode}")
    for name in sorted(configuration):
        if name.startswith("delta.constraints."):
            found.append(f"check constraint {name.removeprefix('delta.constraints.')}")
    kept = configuration.get(TXN_RETENTION)
    if kept is not None and (_days(kept) or 0) < MIN_TXN_RETENTION_DAYS:
        found.append(f"{TXN_RETENTION} = {kept} (at least {MIN_TXN_RETENTION_DAYS} days, or unset)")
    found += _of_columns(json.loads(schema_json), "")
    return found


def _days(interval: str) -> float | None:
    """Return the length of ``interval 2 weeks 1 day`` in days; None if it is not understood."""
    parts = interval.lower().removeprefix("interval").split()
    total = 0.0
    for number, unit in zip(parts[::2], parts[1::2], strict=False):
        days = _UNIT_DAYS.get(unit.removesuffix("s"))
        if days is None or not number.isdigit():
            return None
        total += int(number) * days
    return total if len(parts) % 2 == 0 else None


def _of_columns(struct: Mapping[str, Any], above: str) -> Iterator[str]:
    for column in struct["fields"]:
        name = above + column["name"]
        for rule, what in _COLUMN_RULES.items():
            if rule in column["metadata"]:
                yield f"{what} {name}"
        declared = unsupported_length(column, name)
        if declared is not None:
            yield declared
        yield from _of_type(column["type"], name)


def _of_type(kind: Any, name: str) -> Iterator[str]:
    if kind == "variant":
        yield f"variant column {name}"
    elif isinstance(kind, Mapping):
        if kind["type"] == "struct":
            yield from _of_columns(kind, f"{name}.")
        for inside in ("elementType", "keyType", "valueType"):
            if inside in kind:
                yield from _of_type(kind[inside], name)
