"""What is wrong with an option, in words: never a secret, and what is left out by its name."""

from __future__ import annotations

from typing import Any, Final

_SECRET: Final = {"token", "basic_password", "storage_options"}
_LEFT_OUT: Final = {
    "encrypt": "end-to-end encryption is not supported yet, and nothing is written without it",
    "crypto": "end-to-end encryption is not supported yet, and nothing is written without it",
    "athenz": "logging in by Athenz is not supported",
    "sasl": "logging in by Kerberos (SASL) is not supported",
    "kerberos": "logging in by Kerberos (SASL) is not supported",
}
"""What Pulsar's own clients have; by a part of the option's name."""


def explained(error: Any, known: str) -> str:
    """One of pydantic's errors, as a part of a sentence; ``known``: the names of all options."""
    message = str(error["msg"]).removeprefix("Value error, ")
    if not error["loc"]:
        return message
    name = str(error["loc"][0])
    match error["type"]:
        case "missing":
            return f"option {name!r} is required"
        case "extra_forbidden" if left_out := _left_out(name):
            return f"option {name!r}: {left_out}"
        case "extra_forbidden":
            return f"there is no option {name!r}; options are: {known}"
        case _ if name in _SECRET:
            return f"option {name!r} has the wrong type"
        case _:
            return f"option {name!r}: {message[:1].lower()}{message[1:].rstrip('.')}"


def _left_out(name: str) -> str | None:
    return next((why for part, why in _LEFT_OUT.items() if part in name.lower()), None)
