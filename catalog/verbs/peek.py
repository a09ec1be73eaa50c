"""``eos catalog peek``: show some messages of a topic, decoded."""

from __future__ import annotations

import json
import re
import time
from contextlib import closing
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from eos.catalog._json_values import JsonValue, ValueDecoder, text_of
from eos.catalog._peek_reader import PeekReader, RawMessage
from eos.catalog._topic_arguments import TopicGiven, must_exist
from eos.cli.cluster import Cluster
from eos.cli.reports import Exit, Facts, Report
from eos.client import PulsarClient
from eos.errors import BrokerError, ConfigurationError, TopicNotFound, printable
from eos.ids import MessageId, TopicName
from eos.user_input import parse_time_ms

MAX_MESSAGES: Final = 10_000
_PLACE: Final = re.compile(r"([0-9]{1,18}):([0-9]{1,18})")
_LATEST: Final = "latest"
_EARLIEST: Final = "earliest"


class PeekedMessage(Facts):
    """One message. Bytes that are not text are in the fields that end in ``_hex``.

    ``problem``: why the value was not decoded, or the entry, which may have several messages.
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
        """Return the id and metadata, in one line of any width."""
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
        """Return the value, in one line."""
        if self.value_hex is not None:
            return Text(f"0x{self.value_hex}")
        if isinstance(self.value, str):
            return Text(one_line(self.value))
        return Text(one_line(json.dumps(self.value, ensure_ascii=False)))


class PeekReport(Report):
    """Messages of one topic, in order; those of several partitions by publish time."""

    topic: str
    messages: list[PeekedMessage]
    notes: list[str]

    @property
    def exit(self) -> Exit:
        """Return unknown if messages may be missing."""
        return Exit.UNKNOWN if self.notes else Exit.CLEAN

    def render(self, console: Console) -> None:
        """Print two lines for each message, the second one cut to the terminal's width."""
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
    """Escape text of other users, so that it has one line and no control sequences."""
    # A terminal obeys control sequences in a message.
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
    """Show some committed messages of a topic, decoded by the schema version that each names.

    Creates no durable subscription, and does not wait: later messages, and those of open
    transactions, are not shown. The messages of all partitions are ordered by publish time; one
    partition is TOPIC-partition-3. Values without a schema are shown as text if they are UTF-8,
    else in hexadecimal, cut to the terminal's width; --json shows them whole.

    Needs --service-url; for the last messages --admin-url as well, to find their ledgers.

        eos catalog peek orders

        eos catalog peek orders -n 3 --from 2026-11-24T10:00:00Z

        eos catalog peek orders-partition-0 --from 1042:17 --json

    Exit codes: 0 shown, even if values can't be decoded; 2 something could not be reached, or read
    in time; 64 wrong options, or no such topic.
    """
    name = TopicName.parse(topic)
    if from_ == _LATEST and not cluster.admin_url:
        raise ConfigurationError(
            "The last messages of a topic need the admin API, to find their ledgers.",
            hint="Pass --admin-url http://host:8080, or set EOS_ADMIN_URL; or begin with --from "
            "earliest, a time or LEDGER:ENTRY, which don't need it.",
        )
    with cluster.client() as client, must_exist(f"topic {name}"):
        exact = _partitions(client, name)
        reader = PeekReader(client, number, deadline=time.monotonic() + cluster.timeout_s)
        _look(cluster, reader, exact, from_)
        decoder = ValueDecoder(client, name)
        shown = [_shown(one, decoder) for one in reader.found]
    return PeekReport(topic=str(name), messages=shown, notes=reader.notes)


def _partitions(client: PulsarClient, topic: TopicName) -> list[TopicName]:
    if not client.exists(str(topic)):
        raise TopicNotFound(f"Topic {topic} does not exist.")
    if topic.partition_index is not None:
        return [topic]
    return topic.partitions(client.partition_count(str(topic)))


def _look(cluster: Cluster, reader: PeekReader, exact: list[TopicName], where: str) -> None:
    place, time_ms = _PLACE.fullmatch(where), None
    if place is not None and len(exact) > 1:
        raise ConfigurationError(
            f"--from {where}: an entry belongs to one partition, but the topic has {len(exact)}.",
            hint=f"Name the partition: {exact[0]}.",
        )
    if place is None and where not in (_LATEST, _EARLIEST):
        try:
            time_ms = parse_time_ms(where)
        except ValueError as error:
            raise ConfigurationError(
                f"--from: {error}", hint="Or use latest, earliest, or LEDGER:ENTRY."
            ) from None
    admin = cluster.admin() if where == _LATEST else None
    for one in exact:
        if reader.is_late():
            return
        try:
            if admin is not None:
                reader.add_newest(one, admin)
            elif place is not None:
                reader.add_oldest(one, MessageId(int(place[1]), int(place[2])))
            else:
                reader.add_oldest(one, _start(reader.client, one, time_ms))
        except TopicNotFound:
            if len(exact) == 1:
                raise  # else a partition that was never used


def _start(client: PulsarClient, topic: TopicName, time_ms: int | None) -> MessageId | None:
    if time_ms is None:
        return None
    with closing(client.topic_bounds(str(topic))) as tail:
        try:
            return MessageId(*tail.place_at(time_ms))
        except BrokerError as error:  # a terminated topic of one ledger, loaded again (measured)
            raise ConfigurationError(
                f"The broker can't look for a time in {topic}: {error.message}",
                hint="Leave out --from.",
            ) from None


def _shown(message: RawMessage, decoder: ValueDecoder) -> PeekedMessage:
    value = JsonValue(None) if message.problem else decoder.decode(message)
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
    except (ValueError, OverflowError, OSError):  # a producer may set any number
        return f"{time_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
