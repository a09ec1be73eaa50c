"""Defaults in the user's Avro definitions."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from eos.errors import ConfigurationError
from eos.schemas import AvroSchema, JsonSchema

INNER = {"type": "record", "name": "In", "fields": [{"name": "x", "type": "int"}]}
ENDLESS = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "next", "type": "Node", "default": {}}],
}
FIXED = {"type": "fixed", "name": "F", "size": 2}


def definition(kind: Any, default: Any) -> str:
    field = {"name": "f", "type": kind, "default": default}
    return json.dumps({"type": "record", "name": "Row", "fields": [field]})


@pytest.mark.parametrize(
    ("kind", "default", "text"),
    [
        ("int", "12", "Field 'f' has the type int, but the default \"12\""),
        ("int", 2**31, "the default 2147483648"),
        ("long", -(2**63) - 1, "has the type long"),
        ("long", True, "the default true"),
        ("long", 1.0, "the default 1.0"),
        ("boolean", 1, "has the type boolean"),
        ("float", 1e300, "has the type float"),
        ("double", True, "has the type double"),
        ("string", None, "the default null"),
        ("bytes", "\u0100", "has the type bytes"),
        (FIXED, "a", "has the type fixed F"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B", "has the type enum E"),
        ({"type": "array", "items": "string"}, "ab", "has the type array"),
        ({"type": "map", "values": "int"}, {"a": "b"}, "has the type map"),
        (["null", "string"], 1, "has the type null or string"),
        (INNER, {}, "has the type record In"),
        (ENDLESS, {}, "has the type record Node"),
    ],
)
def test_a_default_of_another_type_is_refused_when_the_schema_is_made(kind, default, text):
    for schema in (AvroSchema, JsonSchema):
        with pytest.raises(ConfigurationError, match=text):
            schema(definition(kind, default))


def test_a_wrong_default_is_found_in_nested_records():
    wrong = {
        "type": "record",
        "name": "In",
        "fields": [{"name": "x", "type": "int", "default": "1"}],
    }
    for kind, path in (
        ({"type": "array", "items": wrong}, r"f\[\]\.x"),
        ({"type": "map", "values": ["null", wrong]}, r"f\{\}\.x"),
    ):
        own = {"type": "record", "name": "Row", "fields": [{"name": "f", "type": kind}]}
        with pytest.raises(ConfigurationError, match=f"Field '{path}' has the type int"):
            AvroSchema(json.dumps(own))


def test_the_default_of_a_union_may_have_any_of_its_types():
    rows = pa.array([{"id": 1}])
    fields = [
        {"name": "id", "type": "long"},
        {"name": "f", "type": ["null", "string"], "default": "x"},
    ]
    own = {"type": "record", "name": "Row", "fields": fields}
    encode = AvroSchema(json.dumps(own)).writer(rows.type).encode
    assert encode(rows).to_pylist() == [b"\x02\x02\x02x"]


def test_a_recursive_record_may_have_defaults():
    fields = [
        {"name": "next", "type": ["null", "Node"], "default": None},
        {"name": "id", "type": "long", "default": 7},
    ]
    AvroSchema(json.dumps({"type": "record", "name": "Node", "fields": fields}))
