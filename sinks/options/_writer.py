"""What ``format("pulsar")`` takes for writing: options as Spark hands them over, all as text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from pydantic import StringConstraints, model_validator

from eos.errors import ConfigurationError
from eos.schemas import AvroSchema, JsonSchema
from eos.sinks.options._base import SECRETS, Text, left_out
from eos.sinks.options._pulsar import PulsarSinkOptions
from eos.spelling import plain, unknown_option
from eos.transport.auth import AUTH_OPTIONS, take_auth
from eos.transport.secret_text import check_no_secrets

_STORAGE: Final = re.compile(r"storage_?options\.(.+)", re.IGNORECASE)
_WITH_DEFINITION: Final = {"avro": AvroSchema, "json": JsonSchema}

# Names of StreamNative's and Kafka's connectors that mean what an option of ours means.
_SAME: Final = {
    "pulsarproducercompressiontype": "compression",
    "kafkacompressiontype": "compression",
    "pulsarproducerhashingscheme": "hashing",
    "pulsarproducerbatchingmaxbytes": "max_batch_bytes",
}
# What their values are called, where it is not the same.
_VALUES: Final = {
    "hashing": {"javastringhash": "java", "murmur3_32hash": "murmur3"},
    "compression": {"gzip": "zlib"},
}
_NOT_HERE: Final = {
    "listeners": "epochs are told of in other processes than yours: use PulsarSink",
    "max_attempts": "Spark runs an epoch once, and a restart of the query runs it again",
    "on_gap": "Spark leaves no epoch out, and nobody can catch an epoch's error",
    "on_changed_columns": "columns are compared by PulsarSink",
}
_ELSEWHERE: Final = {
    "path": "name the topic: option('topic', ...), and save() or start() without a path",
    "topics": "name one as topic; or have a column 'topic', and set receipt_namespace",
    "topicspattern": "name one as topic; or have a column 'topic', and set receipt_namespace",
    "kafkabootstrapservers": "service_url says where Pulsar is: pulsar://host:6650",
    "includeheaders": "headers are the column properties, a map of strings",
    "pulsarclientauthpluginclassname": "log in by token, basic_user, oauth2_... or tls_...",
    "pulsarclientauthparams": "log in by token, basic_user, oauth2_... or tls_...",
}
_FOREIGN: Final = {
    "kafka": "it is an option of Kafka's client",
    "pulsarproducer": "it is an option of Pulsar's Java client, and producers here are others",
    "pulsarclient": "it is an option of Pulsar's Java client, and the client here is another",
    "pulsaradmin": "it is an option of Pulsar's Java client; the admin API is admin_url",
}


class WriterOptions(PulsarSinkOptions):
    """What ``format("pulsar")`` takes for writing: the options of ``PulsarSink``, and a few more.

    Upper and lower case, ``_``, ``.`` and ``-`` don't count in names: ``service_url`` is
    ``serviceUrl`` and StreamNative's ``service.url``. All but ``listeners``, ``max_attempts`` and
    ``on_gap``, which have no meaning here. ``storage_options`` are given one by one:
    ``storage_options.aws_region``.

    Attributes:
        epoch: of a batch job: what names its rows. With it, a job that runs again writes nothing
            more; without it, it writes its rows again.
        schema_definition: with the schema avro or json: the record, in Avro's language.
        checkpoint_location: of a stream, which Spark takes as well. Given with ``option``, not in
            the session's settings, it shows the writer when an epoch was planned.
    """

    epoch: Annotated[str, StringConstraints(min_length=1)] | None = None  # as it is: it is a key
    schema_definition: Text | None = None
    checkpoint_location: Text | None = None

    @classmethod
    def of_stream(cls, given: Mapping[str, str], *, overwrite: bool) -> Self:
        """For ``writeStream``.

        Raises:
            ConfigurationError: names each wrong option and says what is allowed.
        """
        if overwrite:
            raise ConfigurationError(
                "Complete mode replaces earlier rows; a topic can only append.",
                hint='Use outputMode("append"); changed rows become new messages of their key.',
            )
        options = cls._of(given)
        if options.epoch is not None:
            raise ConfigurationError(
                "option 'epoch' is a batch job's: a stream's epochs are numbered by Spark."
            )
        if options.checkpoint_location is None and options.on_rewind == "refuse":
            raise ConfigurationError(
                "The writer does not see where the checkpoint is, and would not notice one that "
                "was set back.",
                hint="Give it with the query: .option('checkpointLocation', ...). Or, with a "
                "source that cuts the same epochs each time, set on_rewind to 'skip'.",
            )
        return options

    @classmethod
    def of_batch(cls, given: Mapping[str, str], *, overwrite: bool) -> Self:
        """For ``write``.

        Raises:
            ConfigurationError: names each wrong option and says what is allowed.
        """
        if overwrite:
            raise ConfigurationError(
                'mode("overwrite") replaces existing messages; a topic can only append.',
                hint='Use mode("append").',
            )
        options = cls._of(given)
        if options.checkpoint_location is not None:
            raise ConfigurationError("option 'checkpointLocation' is a stream's.")
        return options

    @classmethod
    def _of(cls, given: Mapping[str, str]) -> Self:
        fields = cls.model_fields.items()
        own_names = [one.alias or name for name, one in fields if name != "auth"]
        known = {plain(name): name for name in (*own_names, *AUTH_OPTIONS)}
        values: dict[str, Any] = {}
        spelt: dict[str, str] = {}
        storage: dict[str, str] = {}
        if not given:
            raise ConfigurationError(
                "There are no options at all.",
                hint="Spark hands none over from CREATE TABLE ... USING pulsar, with AS SELECT or "
                "without. Use PulsarCatalog.register, or CREATE TEMPORARY VIEW ... USING pulsar "
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
                raise ConfigurationError(f"option {own!r} is given twice, as {twice}.")
            values[own], spelt[own] = _value(own, text), name
        check_no_secrets(values, SECRETS)
        values["auth"] = take_auth(values)
        return cls.parse(values | ({"storage_options": storage} if storage else {}))

    @model_validator(mode="before")
    @classmethod
    def _define(cls, values: dict[str, Any]) -> dict[str, Any]:
        definition, schema = values.get("schema_definition"), values.get("schema")
        if definition is None:
            return values
        if schema not in _WITH_DEFINITION:
            raise ValueError("schema_definition is a record's: set schema to avro or json")
        try:
            return values | {"schema": _WITH_DEFINITION[schema](definition)}
        except ConfigurationError as error:
            raise ValueError(f"schema_definition: {error.message} {error.hint}".strip()) from None


def _value(own: str, text: str) -> Any:
    if own == "create_topics" and text.isdecimal():
        return int(text)  # a number of partitions; "1" would be taken for true
    return _VALUES.get(own, {}).get(text.lower(), text)


def _hint(name: str) -> str:
    foreign = (why for part, why in _FOREIGN.items() if name.startswith(part))
    return _ELSEWHERE.get(name) or left_out(name) or next(foreign, "")


def _refused(name: str, why: str, known: Any) -> ConfigurationError:
    if why:
        return ConfigurationError(f"option {name!r} is not taken here: {why}.")
    wrong = unknown_option(name, sorted(one for one in known if one not in _NOT_HERE))
    return ConfigurationError(wrong if wrong.endswith("?") else f"{wrong}.")
