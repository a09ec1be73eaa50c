"""Which Delta tables we can append to, told from what the table itself demands of its writers.

``deltalake`` 1.6 refuses the commit when it does not know a feature: too late, for by then the
epoch is decided. And it commits files without a word that break a check constraint, an invariant,
a generated column, the names of a column mapping: it takes them as somebody else's duty. So both
are asked before a row is written. Measured, see docs/facts.md.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from deltalake import DeltaTable

from eos.delta import opening
from eos.delta._char_columns import objection
from eos.delta._partitions import can_partition

_KNOWN: Final = {
    "appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "deletionVectors",
    "generatedColumns", "invariants", "timestampNtz", "v2Checkpoint", "variantType",
    "variantType-preview",
}  # fmt: skip
"""What ``deltalake`` commits to, and what asks nothing of an append unless a column or a property
uses it: those are looked for one by one."""
_IDENTITY_VERSION: Final = 6
_FEATURES_VERSION: Final = 7
"""``minWriterVersion`` that brings identity columns; and the one that lists its features."""
_COLUMN_RULES: Final = {
    "delta.generationExpression": "generated column",
    "delta.invariants": "invariant of column",
    "delta.identity.start": "identity column",
}


TXN_RETENTION: Final = "delta.setTransactionRetentionDuration"
MIN_TXN_RETENTION_DAYS: Final = 30
"""For so long an epoch may be in doubt. An identifier that has expired looks like a commit that
never was, and would be made again."""
_UNIT_DAYS: Final = {"second": 1 / 86_400, "minute": 1 / 1440, "hour": 1 / 24, "day": 1, "week": 7}


def table_objections(table: DeltaTable) -> list[str]:
    """What the table demands that an append of files does not keep; [] when we may append."""
    protocol, metadata = table.protocol(), table.metadata()
    found = objections(
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


def objections(
    writer_version: int,
    features: Collection[str],
    configuration: Mapping[str, str],
    schema_json: str,
) -> list[str]:
    """What the table demands that an append of files does not keep; [] when we may append.

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
    """The length of ``interval 2 weeks 1 day``; None when it is not understood."""
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
        declared = objection(column, name)
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
