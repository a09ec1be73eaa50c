"""The options that all sinks have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Required, Self, TypedDict, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    InstanceOf,
    StringConstraints,
    ValidationError,
)

from eos.commit_log import KEEP_EPOCHS
from eos.commit_log.location import Location
from eos.committer import Policies
from eos.errors import ConfigurationError
from eos.events import EpochListener
from eos.ids import check_sink_id
from eos.transport.auth import AUTH_OPTIONS
from eos.transport.message_keys import ENCRYPTION_OPTIONS
from eos.transport.secret_text import check_no_secrets
from eos.user_input import unknown_option

Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
T = TypeVar("T")
_SECRETS = {"token", "basic_password", "tls_private_key_password", "storage_options"}
_SECRETS |= {"catalog", "conninfo"}
# A part of the name of an option of Pulsar's own clients -> why it is refused.
_ENCRYPTION = "set encryption=Encryption(...), or as text keyLocation and encryptionKeys"
_LEFT_OUT = {
    "encrypt": _ENCRYPTION,
    "crypto": _ENCRYPTION,
    "athenz": "Athenz authentication is not supported",
    "sasl": "Kerberos authentication (SASL) is not supported",
    "kerberos": "Kerberos authentication (SASL) is not supported",
}


def allowed(check: Callable[[str], T], value: str) -> T:
    """Return ``check(value)``, and convert its error to pydantic's."""
    try:
        return check(value)
    except ConfigurationError as error:
        raise ValueError(f"{error.message} {error.hint}".strip()) from None


def checked_by(check: Callable[[str], object]) -> AfterValidator:
    """Annotate an option with the check of its text."""

    def unchanged(value: str) -> str:
        allowed(check, value)
        return value

    return AfterValidator(unchanged)


class SinkArguments(TypedDict, total=False):
    """The names and types of the options that all sinks have, for editors and type checkers. Their
    meaning and defaults: ``SinkOptions``."""

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
    """The options that all sinks have.

    Attributes:
        sink_id: your stable name for this output, the key of all records.
        commit_log: root folder of the commit logs, or a URL such as ``s3://bucket/prefix``.
        on_new_query: whether a known sink may be used with a new checkpoint, and a sink that has
            written before with an empty commit log.
        on_new_cluster: whether to continue on a cluster that lacks data which the commit log has as
            written.
        on_gap: whether a restarted query may skip epochs after the last one in the log;
            ``continue`` for functions that leave epochs out.
        on_rewind: what to do if a checkpoint was set back, so that Spark plans committed epochs
            again; ``skip`` if the source cuts the same epochs as before.
        on_changed_columns: whether columns may be added, missing or renamed compared with the
            topic's schema or the table. ``continue`` logs it, as far as schema or table allow it.
            Not checked if rows name their topics.
        max_attempts: how often one epoch runs, each time in a new transaction, before it fails.
        resolve_timeout_s: timeout of finding the mark, of END_TXN, and of the witness.
        keep_epochs: how many of the newest finished epochs the commit log keeps in full;
            `eos recovery verify` can check these.
        storage_options: for a commit log in an object store, as for ``deltalake``.
        listeners: notified of every epoch: metrics, traces, or your own ``EpochListener``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    sink_id: Annotated[Text, checked_by(check_sink_id)]
    commit_log: Annotated[Text, checked_by(Location)]
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
            ConfigurationError: an option is wrong; names each of them and what is allowed, and
                never shows a secret.
        """
        check_no_secrets(values, _SECRETS)
        try:
            return cls(**values)
        except ValidationError as error:
            fields = cls.model_fields.items()
            known = sorted(field.alias or name for name, field in fields)
            wrong = "; ".join(_explain(one, known) for one in error.errors())
            raise ConfigurationError(wrong if wrong.endswith("?") else f"{wrong}.") from None

    @property
    def policies(self) -> Policies:
        """The options ``on_new_query``, ``on_new_cluster``, ``on_gap`` and ``on_rewind``."""
        return Policies(self.on_new_query, self.on_new_cluster, self.on_gap, self.on_rewind)


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
        case "extra_forbidden" if name in ENCRYPTION_OPTIONS:
            return f"option {name!r}: pass encryption=Encryption({name}=...), from eos"
        case "extra_forbidden" if why := left_out(name):
            return f"option {name!r}: {why}"
        case "extra_forbidden":
            return unknown_option(name, known)
        case _ if name in _SECRETS:
            return f"option {name!r} has the wrong type"
        case _:
            return f"option {name!r}: {message[:1].lower()}{message[1:].rstrip('.')}"


def left_out(name: str) -> str | None:
    """Return why ``name``, an option of Pulsar's own clients, is not supported; None: unknown."""
    return next((why for part, why in _LEFT_OUT.items() if part in name.lower()), None)
