"""``eos catalog peek``: some messages of a topic, decoded."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from eos.catalog._names_given import TopicGiven, must_exist
from eos.catalog._peeking import Peeking, RawMessage
from eos.catalog._values_shown import ShownValue, ValueDecoder, text_of
from eos.cli.cluster import Cluster
from eos.cli.exit_codes import Exit
from eos.cli.reports import Facts, Report, ascii_json
from eos.client import PulsarClient
from eos.errors import ConfigurationError, TopicNotFound, printable
from eos.ids import MessageId, TopicName
from eos.times import parse_time_ms

MAX_MESSAGES: Final = 10_000
_PLACE: Final = re.compile(r"([0-9]{1,18}):([0-9]{1,18})")
_LATEST: Final = "latest"
_EARLIEST: Final = "earliest"


class PeekedMessage(Facts):
    """One message. What is bytes and no text stands in the field that ends in ``_hex``.

    ``problem``: why the value is not decoded; or the entry, that may have had several messages.
    """

    id: str
    partition: int | None
    published_at: str | None
    key: str | None
    key_hex: str | None
    value: Any
    value_hex: str | None
    schema_type: str
    schema_version: int | None
    properties: dict[str, str]
    producer: str
    problem: str | None

    def header(self) -> Text:
        """What it is; as wide as it is."""
        parts = [] if self.published_at is None else [("published", self.published_at)]
        if self.partition is not None:
            parts.append(("partition", str(self.partition)))
        if self.key_hex is not None:
            parts.append(("key", f"0x{self.key_hex}"))
        elif self.key is not None:
            parts.append(("key", self.key))
        parts += self.properties.items()
        text = Text(self.id, style="bold")
        for name, value in parts:
            text.append(f"  {one_line(name)}=", style="dim not bold")
            text.append(one_line(value), style="not bold")
        return text

    def body(self) -> Text:
        """The value, in one line."""
        if self.value_hex is not None:
            return Text(f"0x{self.value_hex}")
        if isinstance(self.value, str):
            return Text(one_line(self.value))
        return Text(one_line(json.dumps(self.value, ensure_ascii=False)))


class PeekReport(Report):
    """Messages of one topic, in order; those of several partitions by when they were published."""

    topic: str
    messages: list[PeekedMessage]
    notes: list[str]

    @property
    def exit(self) -> Exit:
        """Not all that was asked for: unknown."""
        return Exit.UNKNOWN if self.notes else Exit.CLEAN

    def to_json(self) -> str:
        """A line for each message."""
        return "\n".join(ascii_json(json.loads(one.model_dump_json())) for one in self.messages)

    def render(self, console: Console) -> None:
        """Two lines for each message, the second one as wide as the terminal."""
        if not self.messages:
            console.print(Text(f"{self.topic}: there is nothing to read."))
        for one in self.messages:
            console.print(one.header(), overflow="fold")
            if one.problem is not None:
                console.print(Text(f"  {one_line(one.problem)}", style="yellow"))
            if one.problem is None or one.value is not None or one.value_hex is not None:
                body = one.body()
                body.truncate(console.width - 2, overflow="ellipsis")
                console.print(Text("  ").append(body), no_wrap=True)
        for note in self.notes:
            console.print(Text(note, style="yellow"))


def one_line(text: str) -> str:
    """Text of others, so that it stays in its line and a terminal obeys none of it."""
    return printable(text.replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t"))


def peek(
    cluster: Cluster,
    topic: TopicGiven,
    number: Annotated[
        int,
        typer.Option("-n", "--number", min=1, max=MAX_MESSAGES, help="How many messages, at most."),
    ] = 10,
    from_: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="latest: the last ones. earliest: the first ones. LEDGER:ENTRY of one partition, "
            "or a time (2026-11-24T10:00:00Z, or milliseconds since 1970): those from there on.",
        ),
    ] = _LATEST,
) -> PeekReport:
    """Some committed messages of a topic, decoded by the version of the schema that each names.

    Leaves no subscription behind, and waits for nothing: what comes later, or is in an open
    transaction, is not shown. Of a partitioned topic the messages of all partitions, by the time
    they were published; TOPIC-partition-3 is one of them. Values without a schema are shown as text
    when they are UTF-8, else as hexadecimal numbers, as far as the terminal is wide; --json gives
    all of them, a line for each message.

    Needs --service-url; for the last messages --admin-url as well, which knows where ledgers begin.

        eos catalog peek orders

        eos catalog peek orders -n 3 --from 2026-11-24T10:00:00Z

        eos catalog peek orders-partition-0 --from 1042:17 --json

    Exit codes: 0 shown, also what can't be decoded; 2 something could not be reached, or read in
    time; 64 wrong options, or no such topic.
    """
    name = TopicName.parse(topic)
    if from_ == _LATEST and not cluster.admin_url:
        raise ConfigurationError(
            "The last messages of a topic need the admin API, which knows where its ledgers begin.",
            hint="Pass --admin-url http://host:8080, or set EOS_ADMIN_URL; or begin with --from "
            "earliest, a time or LEDGER:ENTRY, which need none.",
        )
    with cluster.client() as client, must_exist(f"topic {name}"):
        exact = _partitions(client, name)
        peeking = Peeking(client, number, deadline=time.monotonic() + cluster.timeout_s)
        _look(cluster, peeking, exact, from_)
        decoder = ValueDecoder(client, name)
        shown = [_shown(one, decoder) for one in peeking.found]
    if cluster.as_json:
        for note in peeking.notes:
            Console(stderr=True).print(Text(note, style="yellow"))
    return PeekReport(topic=str(name), messages=shown, notes=peeking.notes)


def _partitions(client: PulsarClient, topic: TopicName) -> list[TopicName]:
    if not client.exists(str(topic)):
        raise TopicNotFound(f"There is no topic {topic}.")
    if topic.partition_index is not None:
        return [topic]
    return topic.partitions(client.partition_count(str(topic)))


def _look(cluster: Cluster, peeking: Peeking, exact: list[TopicName], where: str) -> None:
    """Look at each partition.

    Raises:
        ConfigurationError: ``where`` is no place.
    """
    place, time_ms = _PLACE.fullmatch(where), None
    if place is not None and len(exact) > 1:
        raise ConfigurationError(
            f"--from {where}: an entry is in one partition, and there are {len(exact)}.",
            hint=f"Name it: {exact[0]}.",
        )
    if place is None and where not in (_LATEST, _EARLIEST):
        try:
            time_ms = parse_time_ms(where)
        except ValueError as error:
            raise ConfigurationError(
                f"--from: {error}", hint="Or say latest, earliest, or LEDGER:ENTRY."
            ) from None
    admin = cluster.admin() if where == _LATEST else None
    for one in exact:
        if peeking.is_late():
            return
        try:
            if admin is not None:
                peeking.add_newest(one, admin)
            elif place is not None:
                peeking.add_oldest(one, MessageId(int(place[1]), int(place[2])))
            else:
                peeking.add_oldest(one, _start(peeking.client, one, time_ms))
        except TopicNotFound:
            if len(exact) == 1:
                raise  # else a partition that nobody has used yet


def _start(client: PulsarClient, topic: TopicName, time_ms: int | None) -> MessageId | None:
    if time_ms is None:
        return None
    tail = client.tail(str(topic))
    try:
        return MessageId(*tail.place_at(time_ms))
    finally:
        tail.close()


def _shown(message: RawMessage, decoder: ValueDecoder) -> PeekedMessage:
    value = ShownValue(None) if message.problem else decoder.decode(message)
    key = text_of(message.key)
    partition = message.id.partition
    return PeekedMessage(
        id=str(message.id),
        partition=None if partition < 0 else partition,
        published_at=_moment(message.publish_time_ms),
        key=key,
        key_hex=message.key.hex() if message.key is not None and key is None else None,
        value=value.value,
        value_hex=value.hex,
        schema_type=value.schema_type,
        schema_version=value.schema_version,
        properties=dict(message.properties),
        producer=message.producer_name,
        problem=message.problem or value.problem,
    )


def _moment(time_ms: int | None) -> str | None:
    if time_ms is None:
        return None
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # a producer may say anything
        return f"{time_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
