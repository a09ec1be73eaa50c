"""The options of ``format("pulsar")`` for writing, which Spark passes as text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from pydantic import StringConstraints, model_validator

from eos.errors import ConfigurationError
from eos.schemas import AvroSchema, JsonSchema
from eos.sinks.options._base import Text, left_out
from eos.sinks.options._sinks import PulsarSinkOptions
from eos.transport.auth import take_auth
from eos.transport.message_keys import flat_names, take_encryption
from eos.user_input import plain, unknown_option

_STORAGE: Final = re.compile(r"storage_?options\.(.+)", re.IGNORECASE)
_WITH_DEFINITION: Final = {"avro": AvroSchema, "json": JsonSchema}

# Names in StreamNative's and Kafka's connectors of the same options.
_SAME: Final = {
    "pulsarproducercompressiontype": "compression",
    "kafkacompressiontype": "compression",
    "pulsarproducerhashingscheme": "hashing",
    "pulsarproducerbatchingmaxbytes": "max_batch_bytes",
}
# Their names of values, where they differ.
_VALUES: Final = {
    "hashing": {"javastringhash": "java", "murmur3_32hash": "murmur3"},
    "compression": {"gzip": "zlib"},
}
_NAME: Final = "queryname"
_NOT_HERE: Final = {
    "listeners": "epochs run in other processes than your code: use PulsarSink",
    "max_attempts": "Spark runs an epoch once, and a restart of the query runs it again",
    "on_gap": "Spark leaves no epoch out, and your code can't catch an epoch's error",
    "on_changed_columns": "only PulsarSink compares columns",
}
_ELSEWHERE: Final = {
    "path": "set the topic with option('topic', ...), and call save() or start() without a path",
    "topics": "set one topic; or add a column 'topic', and set receipt_namespace",
    "topicspattern": "set one topic; or add a column 'topic', and set receipt_namespace",
    "kafkabootstrapservers": "set service_url instead: pulsar://host:6650",
    "includeheaders": "headers are the column properties, a map of strings",
    "pulsarclientauthpluginclassname": "set token, basic_user, oauth2_... or tls_... instead",
    "pulsarclientauthparams": "set token, basic_user, oauth2_... or tls_... instead",
}
_FOREIGN: Final = {
    "kafka": "it is an option of Kafka's client",
    "pulsarproducer": "it is an option of Pulsar's Java client, which is not used here",
    "pulsarclient": "it is an option of Pulsar's Java client, which is not used here",
    "pulsaradmin": "it is an option of Pulsar's Java client; set admin_url instead",
}


class WriterOptions(PulsarSinkOptions):
    """The options of ``format("pulsar")`` for writing: those of ``PulsarSink``, and a few more.

    In names, case and the characters ``_``, ``.`` and ``-`` are ignored: ``service_url`` is also
    ``serviceUrl`` and StreamNative's ``service.url``. ``listeners``, ``max_attempts``, ``on_gap``
    and ``on_changed_columns`` are not available. ``storage_options`` are set one by one, for
    example ``storage_options.aws_region``.

    Attributes:
        epoch: the key of a batch job's rows. With it, a job that runs again writes nothing more;
            without it, it writes its rows again.
        schema_definition: with the schema avro or json: the record's definition, in Avro's JSON.
        checkpoint_location: of a stream, also used by Spark. It must be set with ``option``, not in
            the session's settings; the writer reads there when an epoch was planned.
    """

    epoch: Annotated[str, StringConstraints(min_length=1)] | None = None  # not stripped: a key
    schema_definition: Text | None = None
    checkpoint_location: Text | None = None

    @classmethod
    def of_stream(cls, given: Mapping[str, str], *, overwrite: bool) -> Self:
        """Parse the options of ``writeStream``, or raise ConfigurationError."""
        if overwrite:
            raise ConfigurationError(
                "Complete mode replaces earlier rows, but a topic can only append.",
                hint='Use outputMode("append"): changed rows become new messages of their key.',
            )
        # Spark passes the name of a query on, as an option.
        options = cls._of({name: text for name, text in given.items() if plain(name) != _NAME})
        if options.epoch is not None:
            raise ConfigurationError(
                "option 'epoch' is for batch jobs: Spark numbers a stream's epochs."
            )
        if options.checkpoint_location is None and options.on_rewind == "refuse":
            raise ConfigurationError(
                "The checkpoint's location is not set on the query, so the writer could not detect "
                "a checkpoint that was set back.",
                hint="Set it with .option('checkpointLocation', ...). Or, if the source cuts the "
                "same epochs each time, set on_rewind to 'skip'.",
            )
        return options

    @classmethod
    def of_batch(cls, given: Mapping[str, str], *, overwrite: bool) -> Self:
        """Parse the options of ``write``, or raise ConfigurationError."""
        if overwrite:
            raise ConfigurationError(
                'mode("overwrite") replaces existing messages, but a topic can only append.',
                hint='Use mode("append").',
            )
        options = cls._of(given)
        if options.checkpoint_location is not None:
            raise ConfigurationError("option 'checkpointLocation' is for streams.")
        return options

    @classmethod
    def _of(cls, given: Mapping[str, str]) -> Self:
        fields = cls.model_fields.items()
        names = flat_names(one.alias or name for name, one in fields)
        known = {plain(name): name for name in names}
        values: dict[str, Any] = {}
        spelt: dict[str, str] = {}
        storage: dict[str, str] = {}
        if not given:
            raise ConfigurationError(
                "No options are set.",
                hint="Spark passes none from CREATE TABLE ... USING pulsar, with or without AS "
                "SELECT. Use PulsarCatalog.register, or CREATE TEMPORARY VIEW ... USING pulsar "
                "OPTIONS (...); then INSERT INTO it.",
            )
        for name, text in given.items():
            if one_of_storage := _STORAGE.fullmatch(name):
                storage[one_of_storage[1]] = text
                continue
            spelt_plain = plain(name)
            own = known.get(spelt_plain) or _SAME.get(spelt_plain)
            if own is None or own in _NOT_HERE:
                raise _refused(name, _NOT_HERE.get(own or "") or _hint(spelt_plain), known.values())
            if own in values:
                twice = f"{spelt[own]!r} and {name!r}"
                raise ConfigurationError(f"option {own!r} is set twice, as {twice}.")
            values[own], spelt[own] = _value(own, text), name
        values |= {"auth": take_auth(values), "encryption": take_encryption(values)}
        return cls.parse(values | ({"storage_options": storage} if storage else {}))

    @model_validator(mode="before")
    @classmethod
    def _define(cls, values: dict[str, Any]) -> dict[str, Any]:
        definition, schema = values.get("schema_definition"), values.get("schema")
        if definition is None:
            return values
        if schema not in _WITH_DEFINITION:
            raise ValueError("schema_definition is for records: set schema to avro or json")
        try:
            return values | {"schema": _WITH_DEFINITION[schema](definition)}
        except ConfigurationError as error:
            raise ValueError(f"schema_definition: {error.message} {error.hint}".strip()) from None


def _value(own: str, text: str) -> Any:
    if own == "create_topics" and text.isdecimal():
        return int(text)  # a number of partitions; pydantic reads "1" as true
    return _VALUES.get(own, {}).get(text.lower(), text)


def _hint(name: str) -> str:
    foreign = (why for part, why in _FOREIGN.items() if name.startswith(part))
    return _ELSEWHERE.get(name) or left_out(name) or next(foreign, "")


def _refused(name: str, why: str, known: Any) -> ConfigurationError:
    if why:
        return ConfigurationError(f"option {name!r} is not available here: {why}.")
    wrong = unknown_option(name, sorted(one for one in known if one not in _NOT_HERE))
    return ConfigurationError(wrong if wrong.endswith("?") else f"{wrong}.")
