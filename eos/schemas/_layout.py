"""Checks that the bytes that a sink writes are those that its schema's properties describe.

Brokers compare only type and data of schemas, with all versions: a producer may get a version
whose properties describe another byte layout, and readers would silently misread its messages.
"""

from __future__ import annotations

from typing import Final

from eos.errors import IncompatibleSchema
from eos.schemas._key_value import is_inline, parts
from eos.schemas._schema_properties import CHARSET, OFFSET, UTF8, charset_of, framing_of
from eos.wire.commands import SchemaInfo, SchemaType

_HINT: Final = (
    "Write to another topic: this one's schema was registered by a client with another byte layout."
)


def check_plain(registered: SchemaInfo, written: SchemaInfo) -> None:
    """Raise ``IncompatibleSchema`` if the topic's values have framing or a charset, which no sink
    writes. The broker checks schemas of another type."""
    if registered.type != written.type:
        return
    for name, value in layout_of(registered).items():
        if name.endswith((OFFSET, CHARSET)):
            raise IncompatibleSchema(
                f"The topic's schema has the property {name}={value}, which the sink does not "
                "support.",
                hint=_HINT,
            )


def check_same_layout(named: SchemaInfo, written: SchemaInfo) -> None:
    """Raise ``IncompatibleSchema`` if the schema ``named``, which messages refer to, describes
    another byte layout than the one that is ``written``."""
    has, needs = layout_of(named), layout_of(written)
    for name in {**has, **needs}:
        if has.get(name) != needs.get(name):
            raise IncompatibleSchema(
                "The broker accepts the rows' schema as one that the topic has, but that one has "
                f"{name}={has.get(name, 'nothing')}; the sink writes {needs.get(name, 'nothing')}.",
                hint=_HINT,
            )


def layout_of(info: SchemaInfo, of: str = "") -> dict[str, str]:
    """Return the properties of a schema that describe the byte layout."""
    match info.type:
        case SchemaType.AVRO:
            size = framing_of(info)
            return {f"{of}{OFFSET}": str(size)} if size else {}
        case SchemaType.STRING:
            charset = charset_of(info)
            return {} if charset == UTF8 else {f"{of}{CHARSET}": charset}
        case SchemaType.KEY_VALUE:
            found = {"kv.encoding.type": "INLINE" if is_inline(info) else "SEPARATED"}
            for which, part in zip(("key", "value"), parts(info), strict=True):
                kind = "?" if part is None else SchemaType(part.type).name
                found[f"{which}.schema.type"] = kind
                found |= {} if part is None else layout_of(part, f"{which}'s ")
            return found
    return {}
