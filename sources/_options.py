"""The options of the source: checked when a reader is made, each wrong one named."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, Final, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from eos.client.kept import ClientOptions
from eos.errors import ConfigurationError
from eos.ids import TopicName
from eos.transport.address import parse_service_url
from eos.transport.security import Security

_Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]

_SECRETS: Final = {"token", "basic_password"}
_PENDING_BYTES: Final = 32 * 1024 * 1024


class SourceOptions(BaseModel):
    """What ``format("pulsar")`` takes, for reading.

    Upper and lower case, ``_``, ``.`` and ``-`` don't count in names: ``service_url`` is
    ``serviceUrl`` and StreamNative's ``service.url``.

    Attributes:
        service_url: ``pulsar://host:6650`` or ``pulsar+ssl://host:6651``, several hosts by comma.
        topic: one topic; all of its partitions are read.
        topics: several, by comma.
        starting_offsets: earliest, latest, or a JSON object ``{"exact partition": "ledger:entry"}``
            (inclusive; partitions that it does not name begin with their first entry). Streams
            begin there once; then the checkpoint says where they are. Latest by default for
            streams, earliest for batch reads.
        ending_offsets: of batch reads: latest, or a JSON object (not included).
        metadata: adds the columns that begin with ``__``.
        request_timeout_s: deadline of each request, and for how long a task waits for an entry
            that the broker has promised.
        token, token_file, and others: logging in, as for ``PulsarSink``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    service_url: _Text
    topic: _Text | None = None
    topics: _Text | None = None
    starting_offsets: _Text | None = None
    ending_offsets: _Text = "latest"
    metadata: bool = False
    request_timeout_s: Annotated[float, Field(gt=0, le=3600)] = 30.0
    token: str | None = Field(default=None, repr=False)
    token_file: _Text | None = None
    oauth2_issuer_url: _Text | None = None
    oauth2_credentials_file: _Text | None = None
    oauth2_audience: _Text | None = None
    oauth2_scope: _Text | None = None
    oauth2_trust_certs_file: _Text | None = None
    basic_user: _Text | None = None
    basic_password: str | None = Field(default=None, repr=False)
    tls_trust_certs_file: _Text | None = None
    tls_certificate_file: _Text | None = None
    tls_private_key_file: _Text | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """Check ``given``.

        Raises:
            ConfigurationError: names each wrong option and says what is allowed; never repeats a
                secret.
        """
        names = {_plain(name): name for name in cls.model_fields}
        values: dict[str, Any] = {}
        for name, value in given.items():
            known = names.get(_plain(name))
            if known is None:
                raise ConfigurationError(
                    f"there is no option {name!r}; options are: {', '.join(cls.model_fields)}."
                )
            values[known] = value
        try:
            options = cls(**values)
        except ValidationError as error:
            wrong = "; ".join(_explain(one) for one in error.errors())
            raise ConfigurationError(f"{wrong}.") from None
        parse_service_url(options.service_url)
        options.security  # noqa: B018 - half a key pair is refused here, not in a task
        options.topic_names  # noqa: B018 - nor a malformed name
        return options

    @model_validator(mode="after")
    def _names_its_topics(self) -> Self:
        if (self.topic is None) == (self.topics is None):
            raise ValueError("set topic, or topics with several names by comma")
        return self

    @property
    def topic_names(self) -> tuple[TopicName, ...]:
        """The topics, each once, in the order that they were given."""
        names = (self.topic or self.topics or "").split(",")
        return tuple(dict.fromkeys(TopicName.parse(name.strip()) for name in names))

    @property
    def security(self) -> Security:
        """Authentication and TLS, as the client takes them."""
        return Security(**{one.name: getattr(self, one.name) for one in fields(Security)})

    @property
    def client(self) -> ClientOptions:
        """What the driver and tasks make their clients of."""
        return ClientOptions(
            service_url=self.service_url,
            security=self.security,
            timeout_s=self.request_timeout_s,
            max_pending_bytes=_PENDING_BYTES,
        )


def _plain(name: str) -> str:
    return re.sub(r"[._-]", "", name).lower()


def _explain(error: Any) -> str:
    message = str(error["msg"]).removeprefix("Value error, ")
    if not error["loc"]:
        return message
    name = str(error["loc"][0])
    if error["type"] == "missing":
        return f"option {name!r} is required"
    if name in _SECRETS:
        return f"option {name!r} has the wrong type"
    return f"option {name!r}: {message[:1].lower()}{message[1:].rstrip('.')}"
