"""Does a sink write the bytes that readers expect by the schema which its messages will name?

Brokers compare type and data of schemas only, of all versions: who opens a producer may be given a
version whose properties say other bytes. Without a word readers would misread what is written.
"""

from __future__ import annotations

from typing import Final

from eos.errors import IncompatibleSchema
from eos.schemas._key_value import is_inline, parts
from eos.schemas._properties import CHARSET, OFFSET, UTF8, charset_of, framing_of
from eos.wire.commands import SchemaInfo, SchemaType

_HINT: Final = (
    "Write to another topic: this one's schema was registered by software that writes other bytes."
)


def check_plain(registered: SchemaInfo, written: SchemaInfo) -> None:
    """Raise ``IncompatibleSchema`` when values of the topic have what no sink writes: framing, or
    text in an encoding of its own. Another kind of schema is the broker's to judge."""
    if registered.type != written.type:
        return
    for name, said in layout_of(registered).items():
        if name.endswith((OFFSET, CHARSET)):
            raise IncompatibleSchema(
                f"The topic's schema says {name}={said} of its values, which the sink does not "
                "write.",
                hint=_HINT,
            )


def check_same_layout(named: SchemaInfo, written: SchemaInfo) -> None:
    """Raise ``IncompatibleSchema`` when readers, by the schema ``named``, would look for other
    bytes than those that are ``written``."""
    has, needs = layout_of(named), layout_of(written)
    for name in {**has, **needs}:
        if has.get(name) != needs.get(name):
            raise IncompatibleSchema(
                "The broker takes the rows' schema for one that the topic has, which says "
                f"{name}={has.get(name, 'nothing')}; the sink writes {needs.get(name, 'nothing')}.",
                hint=_HINT,
            )


def layout_of(info: SchemaInfo, of: str = "") -> dict[str, str]:
    """What the properties say of the bytes, by the properties' names."""
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
