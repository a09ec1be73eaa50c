"""What PySpark 4.2 has and older releases get from us."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructField, StructType

from eos.delta.column_rules import SPARK_METADATA
from eos.sinks import spark_compat

INNER = StructType([StructField("b", IntegerType(), False, {"comment": "inside", "n": 1})])
COLUMNS = StructType(
    [
        StructField("a", StringType(), False, {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}),
        StructField("plain", IntegerType()),
        StructField("s", INNER, True, {"comment": "ä"}),
        StructField("many", ArrayType(INNER, False)),
        StructField("map", MapType(StringType(), ArrayType(INNER), False)),
    ]
)


def bare(kind: pa.DataType) -> pa.DataType:
    """``kind`` without metadata, as PySpark returned it before 4.2."""
    if pa.types.is_struct(kind):
        fields = [kind.field(n) for n in range(kind.num_fields)]
        return pa.struct([f.with_type(bare(f.type)).with_metadata(None) for f in fields])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(bare(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(bare(kind.value_type)))
    return kind


def test_columns_have_the_metadata_of_spark_4_2_on_every_release():
    schema = spark_compat.arrow_schema(COLUMNS)
    older = [field.with_type(bare(field.type)).with_metadata(None) for field in schema]
    assert not any(field.metadata for field in older)
    again = pa.schema(spark_compat.with_metadata(COLUMNS.fields, older))
    assert again.equals(schema, check_metadata=True)
    assert schema.field("a").metadata == {
        SPARK_METADATA.encode(): b'{"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}'
    }
    inner = schema.field("map").type.item_type.value_type.field(0)
    assert inner.metadata == {SPARK_METADATA.encode(): b'{"comment": "inside", "n": 1}'}
    assert not inner.nullable
