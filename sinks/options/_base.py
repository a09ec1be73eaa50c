"""What every sink is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Required, Self, TypedDict, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    InstanceOf,
    StringConstraints,
    ValidationError,
    field_validator,
)

from eos.commit_log import KEEP_EPOCHS
from eos.commit_log.location import Location
from eos.errors import ConfigurationError
from eos.events import EpochListener
from eos.ids import check_sink_id
from eos.spelling import unknown_option
from eos.transport.auth import AUTH_OPTIONS
from eos.transport.secret_text import check_no_secrets

Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
T = TypeVar("T")
SECRETS = {"token", "basic_password", "storage_options"}
_LEFT_OUT = {
    "encrypt": "end-to-end encryption is not supported yet, and nothing is written without it",
    "crypto": "end-to-end encryption is not supported yet, and nothing is written without it",
    "athenz": "logging in by Athenz is not supported",
    "sasl": "logging in by Kerberos (SASL) is not supported",
    "kerberos": "logging in by Kerberos (SASL) is not supported",
}
"""What Pulsar's own clients have; by a part of the option's name."""


class SinkArguments(TypedDict, total=False):
    """The options that all sinks have, by name and type, so that editors complete them and type
    checkers find a wrong one. What they mean, and their defaults: ``SinkOptions``."""

    sink_id: Required[str]
    commit_log: Required[str]
    on_new_query: Literal["refuse", "continue"]
    on_new_cluster: Literal["refuse", "continue"]
    on_gap: Literal["refuse", "continue"]
    on_rewind: Literal["refuse", "skip"]
    on_changed_columns: Literal["refuse", "continue"]
    max_attempts: int
    resolve_timeout_s: float
    keep_epochs: int
    storage_options: Mapping[str, str] | None
    listeners: Sequence[EpochListener]


class SinkOptions(BaseModel):
    """What every sink is made of.

    Attributes:
        sink_id: your stable name for this output; everything that is recorded hangs on it.
        commit_log: root folder, or URL as ``s3://bucket/prefix``, of the commit logs.
        on_new_query: what to do about a new checkpoint under a known sink, and about an empty
            commit log under a sink that has written before.
        on_new_cluster: what to do about a cluster without what the commit log says was written.
        on_gap: what to do about a restarted query that asks for an epoch which does not follow the
            last one that the log has; ``continue`` for functions that leave epochs out.
        on_rewind: what to do about a checkpoint that was set back, so that Spark plans committed
            epochs anew; ``skip`` when the source cuts the same epochs as before.
        on_changed_columns: what to do about rows whose columns are not those of the topic's schema
            or of the table, more, fewer or renamed ones: ``continue`` says so in the log, as far as
            schema or table take them. Not where rows name their topics.
        max_attempts: how often one epoch runs, each time in a new transaction, before it fails.
        resolve_timeout_s: deadline for finding the mark, for END_TXN, and for the witness.
        keep_epochs: how many of the newest finished epochs the commit log keeps in full; these are
            the ones that `eos recovery verify` can check.
        storage_options: for a commit log in an object store, as ``deltalake`` takes them.
        listeners: who is told of every epoch: metrics, traces, or your own ``EpochListener``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    sink_id: Text
    commit_log: Text
    on_new_query: Literal["refuse", "continue"] = "refuse"
    on_new_cluster: Literal["refuse", "continue"] = "refuse"
    on_gap: Literal["refuse", "continue"] = "refuse"
    on_rewind: Literal["refuse", "skip"] = "refuse"
    on_changed_columns: Literal["refuse", "continue"] = "continue"
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 3
    resolve_timeout_s: Annotated[float, Field(gt=0, le=3600)] = 60.0
    keep_epochs: Annotated[int, Field(ge=1)] = KEEP_EPOCHS
    storage_options: Mapping[str, str] | None = Field(default=None, repr=False)
    listeners: tuple[InstanceOf[EpochListener], ...] = ()

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Check ``values``.

        Raises:
            ConfigurationError: names each wrong option and says what is allowed; never repeats a
                secret.
        """
        check_no_secrets(values, SECRETS)
        try:
            return cls(**values)
        except ValidationError as error:
            fields = cls.model_fields.items()
            known = sorted(field.alias or name for name, field in fields)
            wrong = "; ".join(_explain(one, known) for one in error.errors())
            raise ConfigurationError(wrong if wrong.endswith("?") else f"{wrong}.") from None

    @field_validator("sink_id")
    @classmethod
    def _sink_id(cls, value: str) -> str:
        return allowed(check_sink_id, value)

    @field_validator("commit_log")
    @classmethod
    def _commit_log(cls, value: str) -> str:
        allowed(Location, value)
        return value


def allowed(check: Callable[[str], T], value: str) -> T:
    """``check(value)``, its error as pydantic takes it."""
    try:
        return check(value)
    except ConfigurationError as error:
        raise ValueError(f"{error.message} {error.hint}".strip()) from None


def _explain(error: Any, known: Sequence[str]) -> str:
    message = str(error["msg"]).removeprefix("Value error, ")
    if not error["loc"]:
        return message
    name = str(error["loc"][0])
    match error["type"]:
        case "missing":
            return f"option {name!r} is required"
        case "extra_forbidden" if name in AUTH_OPTIONS:
            return f"option {name!r}: pass auth=Auth({name}=...), with Auth from eos"
        case "extra_forbidden" if why := left_out(name):
            return f"option {name!r}: {why}"
        case "extra_forbidden":
            return unknown_option(name, known)
        case _ if name in SECRETS:
            return f"option {name!r} has the wrong type"
        case _:
            return f"option {name!r}: {message[:1].lower()}{message[1:].rstrip('.')}"


def left_out(name: str) -> str | None:
    """Why there is no option ``name``, where it is one of Pulsar's own clients that is missing."""
    return next((why for part, why in _LEFT_OUT.items() if part in name.lower()), None)
