"""The options of the source, which are checked when a reader is created."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    InstanceOf,
    StringConstraints,
    ValidationError,
    model_validator,
)

from eos.admin import AdminClient
from eos.client.worker_cache import ClientOptions
from eos.delta.folder import Bucket, Folder
from eos.errors import ConfigurationError
from eos.ids import TopicName
from eos.schemas import Schema
from eos.sources._value_format import BYTES, Mode, own_schema
from eos.transport.address import ClusterRules, parse_service_url
from eos.transport.auth import Auth, take_auth
from eos.transport.message_keys import Encryption, flat_names, take_encryption
from eos.transport.secret_text import check_no_secrets
from eos.user_input import plain, unknown_option

_Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]

_Count = Annotated[int, Field(ge=1, lt=2**63)]

LIMITS: Final = ("max_entries_per_trigger", "max_bytes_per_trigger", "max_rows_per_trigger")


_FOR_WRITING: Final = {"sinkid", "commitlog", "createtopics", "epoch", "receiptnamespace"}
_OF_A_TABLE: Final = {"owner", "provider"}
_FORGOTTEN: Final = (
    "Spark does not keep the options of CREATE TABLE. Pass them to PulsarCatalog.register, to a "
    "statement: FROM orders WITH (startingOffsets='latest'), or to CREATE TEMPORARY VIEW ... USING "
    "pulsar OPTIONS (...)."
)
_OF_WRITING: Final = "It is for writing. To read, use a separate reader, or a view in SQL."


class SourceOptions(BaseModel):
    """The options of ``format("pulsar")`` for reading.

    In names, case and the characters ``_``, ``.`` and ``-`` are ignored: ``service_url`` is also
    ``serviceUrl`` and StreamNative's ``service.url``.

    Attributes:
        service_url: ``pulsar://host:6650`` or ``pulsar+ssl://host:6651``; several hosts by comma.
        admin_url: of the admin API, which counts entries: needed for limits and for
            ``min_partitions``.
        topic: one topic; all of its partitions are read.
        topics: several, by comma.
        topics_pattern: a namespace and a regular expression, ``public/default/orders-.*``: all
            topics whose names match, including later ones.
        starting_offsets: earliest, latest, or a JSON object that has earliest, latest or
            ``ledger:entry`` (inclusive) by topics and exact partitions; others begin with their
            first entry. Used once by a stream, which then continues from its checkpoint. Default:
            latest for streams, earliest for batch reads.
        starting_time: the alternative: begin with the first message that was published then or
            later (a stream: the first entry); milliseconds since 1970, or ``2026-11-22T10:00:00Z``;
            or a JSON object of such times.
        ending_offsets: for batch reads, as ``starting_offsets`` (exclusive); default: latest.
        ending_time: the alternative: only messages that were published before then.
        publish_time_slack_s: how much publish times may decrease in a topic, by clocks of producers
            and their retries: so much more is read at both ends of a time window in batch reads.
        ending_wait_s: how long a batch read waits if it can't reach its end yet: a transaction is
            open before it, or ``ending_time`` is in the future.
        on_open_transaction: what to do if a transaction is open even after that: fail (an error),
            or stop (a warning, and the read ends before it).
        history: folder or URL of a Delta table with the topics' history. It is read first, then
            each partition after its last message in the table.
        history_version: the table's version; default: the newest.
        tiered_storage: the bucket that the brokers offload to, ``s3://bucket``, ``gs://bucket`` or
            ``abfss://container@account.dfs.core.windows.net``, or a folder with its objects: large
            ledgers there are read directly, and anything unclear through the broker. For the
            format of their jcloud offloader. Needs ``admin_url``.
        max_entries_per_trigger: approximate limit of the entries of an epoch, over all partitions;
            at least one of each that has any. An entry is a producer's batch of messages.
        max_bytes_per_trigger: the same in bytes of the broker's storage.
        max_rows_per_trigger: the same in messages, estimated from the size of an entry of each
            partition: the next one; with more than 64 partitions, one from an earlier epoch.
        min_partitions: minimum number of tasks, if there are enough entries: partitions are split.
        max_partitions: maximum number of tasks for topics: each reads several partitions, one after
            the other.
        split_by: ``entries``: tasks read ranges of a partition's entries; ``keys``: each reads all
            entries and keeps its share of the keys, so that the messages of a key stay in order in
            one task (messages without a key are in the first).
        dropped_topics: topics, by comma, that the query has read and no longer reads, even if its
            pattern matches them; this is no error then.
        fail_on_data_loss: whether a query fails if entries were deleted that it has not read yet.
        durable_subscription: whether a stream has a subscription that keeps unread messages.
        subscription: its name; default: a new name, which is kept in the checkpoint.
        schema: what values become: bytes; auto, columns by the topic's registered schema, which
            must be the same for all topics; one of string, int8 to int64, float, double, boolean,
            date, timestamp; or avro or json with ``schema_definition``.
        schema_definition: a record in Avro's JSON, which the topics' schemas are resolved to.
        mode: what to do with values that can't be read: failfast (an error), permissive (null, and
            the value and the reason in two more columns) or dropmalformed.
        allow_different_topic_schemas: with ``auto``: values stay bytes.
        read_compacted: for batch reads: the newest message of each key in the topic's compaction,
            then all messages after the compaction, as with Java's reader. With ``admin_url`` a
            compaction meanwhile is an error, which otherwise may bring deleted keys back.
        metadata: add the message's own columns, ``__key`` and others: see ``METADATA``.
        request_timeout_s: timeout of each request, and of fetching an entry that the broker has
            announced.
        listener_name, subscription_prefix: as for ``PulsarSink``.
        auth: made of the options with the names of an ``Auth``'s arguments, such as ``token_file``.
        encryption: made of ``key_location`` and ``crypto_failure_action``, see ``Encryption``: the
            private keys of encrypted messages, which tasks read.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    service_url: _Text
    admin_url: _Text | None = None
    topic: _Text | None = None
    topics: _Text | None = None
    topics_pattern: _Text | None = None
    starting_offsets: _Text | None = None
    starting_time: _Text | None = None
    ending_offsets: _Text | None = None
    ending_time: _Text | None = None
    publish_time_slack_s: Annotated[float, Field(ge=0, le=4.6e15)] = 60.0
    ending_wait_s: Annotated[float, Field(ge=0, le=86_400)] = 30.0
    on_open_transaction: Literal["fail", "stop"] = "fail"
    history: _Text | None = None
    history_version: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    tiered_storage: _Text | None = None
    max_entries_per_trigger: _Count | None = None
    max_bytes_per_trigger: _Count | None = None
    max_rows_per_trigger: _Count | None = None
    min_partitions: Annotated[int, Field(ge=1, le=100_000)] | None = None
    max_partitions: Annotated[int, Field(ge=1, le=100_000)] | None = None
    split_by: Literal["entries", "keys"] = "entries"
    dropped_topics: _Text | None = None
    fail_on_data_loss: bool = True
    durable_subscription: bool = True
    subscription: _Text | None = None
    value_schema: _Text = Field(default=BYTES, alias="schema")
    schema_definition: _Text | None = None
    mode: Mode = Mode.FAILFAST
    allow_different_topic_schemas: bool = False
    read_compacted: bool = False
    metadata: bool = False
    request_timeout_s: Annotated[float, Field(gt=0, le=3600)] = 30.0
    listener_name: _Text | None = None
    subscription_prefix: _Text | None = None
    auth: InstanceOf[Auth] = Auth()
    encryption: InstanceOf[Encryption] | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str], auth: Auth | None = None) -> Self:
        """Check ``given``; ``auth`` replaces its options of authentication.

        Raises:
            ConfigurationError: an option is wrong; names each of them and what is allowed, and
                never shows a secret.
        """
        own = flat_names(one.alias or name for name, one in cls.model_fields.items())
        names = {plain(name): name for name in own}
        values: dict[str, Any] = {}
        for name, value in given.items():
            known = names.get(plain(name))
            if known is None:
                wrong, hint = unknown_option(name, map(_camel, own)), _hint(name)
                raise ConfigurationError(wrong if wrong.endswith("?") else f"{wrong}.", hint=hint)
            values[known] = value.lower() if known == "mode" else value
        auth = auth or take_auth(values)
        encryption = take_encryption(values)
        check_no_secrets(values, ())
        try:
            options = cls(**values, auth=auth, encryption=encryption)
        except ValidationError as error:
            wrong = "; ".join(_explain(one) for one in error.errors())
            # In the style of Spark's options, and of the docs.
            written = re.sub(rf"\b({'|'.join(own)})\b", lambda name: _camel(name[0]), wrong)
            raise ConfigurationError(f"{written}.") from None
        parse_service_url(options.service_url)
        options.rules  # noqa: B018 - these raise here instead of in a task
        options.topic_names, options.pattern  # noqa: B018
        options.own_schema  # noqa: B018
        options._check_dropped()
        if options.tiered_storage is not None:
            Bucket(options.tiered_storage)
        if options.history is not None:
            Folder(options.history)
            for topic in options.topic_names:
                if topic.partition_index is not None:
                    raise ConfigurationError(
                        f"With history only whole topics can be read, but {topic} is a partition.",
                        hint=f"Name the topic: {topic.base}.",
                    )
        return options

    def _check_dropped(self) -> None:
        for topic in self.topic_names:
            for dropped in self.dropped_names:
                if dropped in (topic, topic.base) or dropped.base == topic:
                    raise ConfigurationError(
                        f"droppedTopics names {dropped}, which the query also reads.",
                        hint="Remove it from one of the two options.",
                    )

    @model_validator(mode="after")
    def _names_its_topics(self) -> Self:
        if [self.topic, self.topics, self.topics_pattern].count(None) != 2:
            raise ValueError("set one of topic, topics (several names by comma) and topics_pattern")
        return self

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        for offsets, time in (
            ("starting_offsets", "starting_time"),
            ("ending_offsets", "ending_time"),
        ):
            if getattr(self, offsets) is not None and getattr(self, time) is not None:
                raise ValueError(f"set {offsets} or {time}, not both")
        self._check_history()
        if self.max_partitions is not None and self.max_partitions < (self.min_partitions or 1):
            raise ValueError("max_partitions is below min_partitions")
        if self.admin_url is None:
            for name in (*LIMITS, "min_partitions"):
                if getattr(self, name) is not None and not (
                    name == "min_partitions" and self.split_by == "keys"
                ):
                    raise ValueError(f"{name} needs admin_url, to count entries")
        if self.tiered_storage is not None and self.admin_url is None:
            raise ValueError("tiered_storage needs admin_url, to find the objects")
        if self.read_compacted:
            if self.history is not None:
                raise ValueError("read_compacted and history exclude each other")
            if self.min_partitions is not None and self.split_by == "entries":
                raise ValueError("with read_compacted partitions are split by keys: set split_by")
        if self.subscription is not None and not self.durable_subscription:
            raise ValueError(
                "subscription names a durable subscription, but durable_subscription is false"
            )
        return self

    def _check_history(self) -> None:
        if self.history is None:
            if self.history_version is not None:
                raise ValueError("history_version needs history, the table")
            return
        for name in ("starting_offsets", "starting_time", "ending_offsets", "ending_time"):
            if getattr(self, name) is not None:
                raise ValueError(
                    "with history the topics are read from the table's end to their current end: "
                    f"leave out {name}"
                )

    @property
    def publish_time_slack_ms(self) -> int:
        """``publish_time_slack_s`` in milliseconds."""
        return int(self.publish_time_slack_s * 1000)

    def reads(self, topic: TopicName) -> bool:
        """Whether ``topic``, or the topic that it is a partition of, is read."""
        if self.pattern is None:
            return topic in self.topic_names or topic.base in self.topic_names
        namespace, local = self.pattern
        if self.drops(topic):
            return False
        return topic.namespace_name == namespace and bool(local.fullmatch(topic.base.local))

    def drops(self, topic: TopicName) -> bool:
        """Whether dropped_topics names ``topic``, or the topic that it is a partition of."""
        names = self.dropped_names
        return topic in names or topic.base in names

    @property
    def dropped_names(self) -> frozenset[TopicName]:
        """The topics of dropped_topics."""
        names = (self.dropped_topics or "").split(",")
        return frozenset(TopicName.parse(name.strip()) for name in names if name.strip())

    @property
    def topic_names(self) -> tuple[TopicName, ...]:
        """The topics, each once, in their order; empty with a pattern."""
        if self.topics_pattern is not None:
            return ()
        names = [self.topic] if self.topic is not None else (self.topics or "").split(",")
        return tuple(dict.fromkeys(TopicName.parse(name.strip()) for name in names))

    @property
    def pattern(self) -> tuple[str, re.Pattern[str]] | None:
        """The namespace and the regular expression of topics_pattern; ConfigurationError if
        invalid."""
        if self.topics_pattern is None:
            return None
        *namespace, local = self.topics_pattern.removeprefix("persistent://").split("/", 2)
        if len(namespace) == 1:
            raise ConfigurationError(
                f"topicsPattern {self.topics_pattern[:200]!r}: expected tenant/namespace/pattern, "
                "or a pattern without '/' for topics in public/default."
            )
        TopicName.parse(f"{'/'.join(namespace) or 'public/default'}/t")  # the namespace is a name
        try:
            pattern = re.compile(local)
        except (re.error, OverflowError, RecursionError) as error:
            raise ConfigurationError(
                f"topicsPattern {local[:200]!r} is not a regular expression: {error}."
            ) from None
        return "/".join(namespace) or "public/default", pattern

    @property
    def own_schema(self) -> Schema | None:
        """The schema of the options; None: bytes, or the registry's. Errors as of
        ``own_schema``."""
        return own_schema(self.value_schema, self.schema_definition)

    @property
    def is_limited(self) -> bool:
        """Whether the size of an epoch is limited."""
        return any(getattr(self, name) is not None for name in LIMITS)

    @property
    def rules(self) -> ClusterRules:
        """The rules of the cluster's operators."""
        return ClusterRules(self.listener_name, self.subscription_prefix)

    def admin(self) -> AdminClient:
        """Return a client of the admin API, which ``admin_url`` names."""
        assert self.admin_url is not None
        return AdminClient(
            self.admin_url,
            self.auth,
            timeout_s=self.request_timeout_s,
            service=parse_service_url(self.service_url),
        )

    @property
    def client(self) -> ClientOptions:
        """The options of the clients, on the driver and in tasks."""
        return ClientOptions(
            service_url=self.service_url,
            auth=self.auth,
            rules=self.rules,
            timeout_s=self.request_timeout_s,
            encryption=self.encryption,
        )


def _hint(unknown: str) -> str | None:
    # Spark forgets options given to CREATE TABLE: say so, instead of "unknown".
    if unknown.lower() in _OF_A_TABLE or unknown.lower().startswith("option."):
        return _FORGOTTEN
    return _OF_WRITING if plain(unknown) in _FOR_WRITING else None


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _explain(error: Any) -> str:
    message = str(error["msg"]).removeprefix("Value error, ")
    if not error["loc"]:
        return message
    name = str(error["loc"][0])
    if error["type"] == "missing":
        return f"option {name!r} is required"
    return f"option {name!r}: {message[:1].lower()}{message[1:].rstrip('.')}"
