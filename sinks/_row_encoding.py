"""Encodes a task's rows by the schemas of its topics; runs on an executor."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.client import EntryProducer, PulsarClient, Transaction
from eos.errors import IncompatibleSchema, InputError
from eos.ids import TopicName, TxnId
from eos.waiting import parallel_map
from eos.wire.batch import Rows, text_keys
from eos.wire.binary_columns import FALSE, TRUE
from eos.wire.commands import SchemaInfo, SchemaType

if TYPE_CHECKING:
    from eos.schemas import Schema, SchemaWriter

_NO_SCHEMA: Final = (
    "The topic requires a schema, and the sink writes bytes: choose one, for example schema='avro'."
)

_CHANGED: Final = (
    "Cast the columns to the topic's types, or rename them; or ask its operator to allow the "
    "change: pulsar-admin namespaces set-schema-compatibility-strategy -c ALWAYS_COMPATIBLE."
)
_NO_RECORDS: Final = "With such a schema sinks write only records: write to another topic."
_NO_UPDATES_SIGN: Final = "auto updating is disabled"

_NO_UPDATES: Final = (
    "Producers may not register schemas in this namespace. Ask its operator to upload this one "
    "(pulsar-admin schemas upload), or to allow producers to register: pulsar-admin namespaces "
    "set-is-allow-auto-update-schema --enable {namespace}."
)


class TaskSchemas:
    """Encodes rows by the schema of their topic, and opens producers with it.

    Args:
        schema: the sink's; None: values are bytes, and no schema is registered.
        value_type: of the values, as found by the driver.
        own_columns: the DataFrame's names of the message's own columns.
        encrypted: only encrypted entries will be sent.
    """

    def __init__(
        self,
        client: PulsarClient,
        schema: Schema | None,
        value_type: pa.DataType | None,
        own_columns: Collection[str] = (),
        *,
        encrypted: bool = False,
    ) -> None:
        self._client = client
        self._encrypted = encrypted
        self._schema = schema
        self._value_type = value_type
        self._own = own_columns
        self._registered: dict[str, SchemaInfo | None] = {}
        self._versions: dict[tuple[str, bytes], SchemaInfo] = {}
        self._writers: dict[str, SchemaWriter] = {}

    def look_up(self, topics: Iterable[str]) -> None:
        """Look up the registered schemas of ``topics``, and make a writer for each.

        Raises:
            InputError: the columns can't be written to one of the topics.
            IncompatibleSchema: the columns mean something else than its schema, or its values have
                framing.
        """
        if self._schema is None:
            return
        from eos.schemas import check_plain  # not at the top: see ``eos.sinks._task``

        bases = {_base(topic): None for topic in topics}
        new = [base for base in bases if base not in self._writers]
        lookup = self._client.lookup
        newest = parallel_map(lambda base: lookup.schema(TopicName.parse(base)), new)
        for base, found in zip(new, newest, strict=True):
            registered = None if found is None else found[0]
            if found is not None:
                self._versions[base, found[1]] = found[0]
            self._check_own_columns(base, registered)
            self._registered[base] = registered
            writer = self._schema.writer(self._value_type, registered)
            for info in (writer.info, registered):
                if info is not None:
                    check_plain(info, writer.info)
            self._writers[base] = writer

    def encoded(self, batch: pa.RecordBatch, topic: str) -> pa.RecordBatch:
        """Encode the values, and the keys if they have a schema; or raise InputError."""
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        marked = columns.get("is_tombstone")
        if marked is not None:
            is_json = self._schema is not None and "value" in self._schema.json_columns
            columns["value"] = without_tombstones(columns["value"], marked, is_json=is_json)
        if self._schema is not None:
            encode = self._writers[_base(topic)].encode
            columns = self._schema.encode_columns(columns, encode)
        return pa.RecordBatch.from_pydict(columns)

    def _check_own_columns(self, topic: str, registered: SchemaInfo | None) -> None:
        # A column of the message's own must not have the name of a field of the topic's records.
        kind = self._value_type
        if registered is None or kind is None or not pa.types.is_struct(kind):
            return
        data, is_coded = registered.data, registered.type == SchemaType.PROTOBUF_NATIVE  # base64
        suspects = [name for name in self._own if is_coded or name.encode() in data]
        if not suspects:
            return
        from eos.schemas import field_names  # not at the top: see ``eos.sinks._task``

        fields = field_names(registered)
        for name in suspects:
            if name in fields and kind.get_field_index(name) < 0:
                raise InputError(
                    f"Records of {topic} have a field {name!r}, but a column of that name is the "
                    "message's own.",
                    hint="Set metadata=False, which makes all columns fields of the value; or "
                    "rename the column.",
                )

    def open_producers(
        self, topics: Iterable[str], txn: Transaction, after: Collection[TxnId]
    ) -> dict[str, EntryProducer]:
        """Open a producer on each of ``topics``, registered in ``txn``.

        Idle producers that were last used in a transaction of ``after`` are reused. Where no schema
        is registered, a new producer registers it.

        Raises:
            IncompatibleSchema: the topic's schema and that of the rows don't fit; shows both. Or
                readers would decode the rows as something else.
        """
        opened: dict[str, EntryProducer] = {}
        alike: dict[tuple[SchemaInfo | None, bool], list[str]] = {}
        for name in topics:
            info = self._info(name)
            is_new = info is not None and self._registered[_base(name)] is None
            alike.setdefault((info, is_new), []).append(name)
        for (info, is_new), names in alike.items():
            # No schema is registered (any more): only a new producer registers one.
            usable = () if is_new else after
            try:
                producers = self._client.entry_producers(
                    names, txn=txn, schema=info, after=usable, encrypted=self._encrypted
                )
            except IncompatibleSchema as error:
                self._explain(error, names[0], info)
                raise
            opened.update(zip(names, producers, strict=True))
        for name, producer in opened.items():
            self._check_version(_base(name), producer.schema_version)
        return opened

    def _check_version(self, base: str, version: bytes | None) -> None:
        # The schema version that entries will name must describe their bytes.
        if not version:
            return
        if (base, version) not in self._versions:
            found = self._client.lookup.schema(TopicName.parse(base), version)
            if found is None:  # just deleted
                return
            self._versions[base, version] = found[0]
        from eos.schemas import check_same_layout

        # The broker compares type and data only: properties may say other bytes (measured).
        check_same_layout(self._versions[base, version], self._writers[base].info)

    def release_producers(self, producers: Sequence[EntryProducer], txn: Transaction) -> None:
        """Keep ``producers``, which were used in ``txn``, idle for the next epoch."""
        for producer in producers:
            info = self._info(producer.topic)
            self._client.release_producers([producer], txn, info, self._encrypted)

    def _info(self, topic: str) -> SchemaInfo | None:
        return None if self._schema is None else self._writers[_base(topic)].info

    def _explain(self, error: IncompatibleSchema, topic: str, info: SchemaInfo | None) -> None:
        # The broker's refusal leaves out which field it is, and what to do.
        refusal = str(error)
        error.hint = self._remedy(topic, info, refusal)
        if info is None or _NO_UPDATES_SIGN in refusal:
            return
        from eos.schemas import retyped_fields

        fields = retyped_fields(self._registered[_base(topic)], info)
        if fields:
            error.message = f"{error.message.rstrip('.')}. {'; '.join(fields)}."
            error.hint = f"{_CHANGED}{error.hint}"

    def _remedy(self, topic: str, info: SchemaInfo | None, refusal: str) -> str:
        if info is None:
            return _NO_SCHEMA
        from eos.schemas import side_by_side, single_type  # here only: see ``eos.sinks._task``

        both = side_by_side(self._registered[_base(topic)], info)
        if single_type(self._registered[_base(topic)]):
            return f"{_NO_RECORDS}{both}"
        if _NO_UPDATES_SIGN not in refusal:  # it has no error code
            return both
        name = TopicName.parse(topic)
        return _NO_UPDATES.format(namespace=f"{name.tenant}/{name.namespace}") + both


def _base(topic: str) -> str:
    return str(TopicName.parse(topic).base)


def message_rows(batch: pa.RecordBatch, *, tombstones: bool, is_pair: bool) -> Rows:
    """Convert ``batch``, whose values are encoded already, to rows.

    Args:
        tombstones: whether null values are tombstones. A column ``is_tombstone`` overrides it.
        is_pair: a column ``key`` is the pair's; the message's own key is ``message_key``.

    Raises:
        InputError: a key's kind is unknown, a text is not UTF-8, or a value is null and is not
            marked as a tombstone.
    """
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    has_key_of_pair = is_pair and "key" in columns
    key = columns.get("key") if has_key_of_pair or not is_pair else columns.get("message_key")
    is_binary = None if has_key_of_pair else columns.get("key_is_binary")
    is_base64 = None
    if key is not None and is_binary is not None:
        key, is_base64 = text_keys(key, is_binary)
    marked = columns.get("is_tombstone")
    if marked is not None:
        _check_nulls_are_marked(columns["value"], marked)
    return Rows(
        value=columns["value"],
        key=key,
        key_is_base64=is_base64,
        event_time_ms=columns.get("event_time"),
        properties=columns.get("properties"),
        ordering_key=columns.get("ordering_key"),
        tombstones=tombstones or marked is not None,
        keyless_tombstones=marked is not None,
    )


def without_tombstones(values: pa.Array, marked: pa.BooleanArray, *, is_json: bool) -> pa.Array:
    """Return ``values``, not encoded yet, with nulls in the rows that are marked as tombstones.

    ``is_json``: structs are JSON text already.

    Raises:
        InputError: such a row has a value. A record whose fields are all null counts as none.
    """
    tombstones = pc.fill_null(marked, FALSE)
    if not pc.any(tombstones).as_py():
        return values
    row = pc.index(pc.and_(tombstones, _has_content(values, is_json=is_json)), TRUE).as_py()
    if row >= 0:
        raise InputError(
            f"Column 'value' is not null in row {row}, where __isTombstone is true.",
            hint="Make the value null there, or __isTombstone false.",
        )
    mask = tombstones.to_numpy(zero_copy_only=False)
    return values.take(pa.array(np.arange(len(values)), mask=mask))


def _has_content(values: pa.Array, *, is_json: bool) -> pa.BooleanArray:
    found = values.is_valid()
    if is_json:
        return pc.and_(found, pc.fill_null(pc.not_equal(values, "{}"), FALSE))
    if pa.types.is_struct(values.type):
        some = [pc.and_(found, field.is_valid()) for field in values.flatten()]
        for field in some[1:]:
            some[0] = pc.or_(some[0], field)
        return some[0] if some else found
    return found


def _check_nulls_are_marked(values: pa.Array, marked: pa.BooleanArray) -> None:
    tombstones = pc.fill_null(marked, FALSE)
    row = pc.index(pc.and_(values.is_null(), pc.invert(tombstones)), TRUE).as_py()
    if row >= 0:
        raise InputError(
            f"Column 'value' is null in row {row}, where __isTombstone is not true.",
            hint="Make it true if the row is a tombstone, or filter such rows out.",
        )
