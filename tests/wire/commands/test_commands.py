"""Messages: each decodes to itself, and malformed ones are refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eos.errors import ProtocolError
from eos.wire import commands
from eos.wire.commands import COMMANDS
from eos.wire.frames import Delivery, FrameDecoder, encode_frame
from eos.wire.messages import WireMessage

RANGES = {
    "uint64": (0, 2**64 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint32": (0, 2**32 - 1),
    "int32": (-(2**31), 2**31 - 1),
}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def values_of(spec: dataclasses.Field[Any]) -> st.SearchStrategy[Any]:
    kind = spec.metadata["kind"]
    if isinstance(kind, type):
        values = messages(kind)
    elif kind in RANGES:
        values = st.integers(*RANGES[kind])
    else:
        values = {
            "bool": st.booleans(),
            "string": TEXT,
            "any_text": TEXT,
            "bytes": st.binary(max_size=12),
        }[kind]
    if spec.metadata["repeated"]:
        return st.lists(values, max_size=3).map(tuple)
    if spec.default is None:
        return st.none() | values
    return values


def messages(kind: type[WireMessage]) -> st.SearchStrategy[WireMessage]:
    """Any message of a class: each field has arbitrary values of its declared kind."""
    return st.builds(kind, **{spec.name: values_of(spec) for spec in dataclasses.fields(kind)})


@settings(max_examples=25, deadline=None)
@pytest.mark.parametrize("kind", COMMANDS.values(), ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_every_command_is_decoded_to_itself(kind, data):
    command = data.draw(messages(kind))
    expected = Delivery(command, b"") if isinstance(command, commands.Deliver) else command
    assert list(FrameDecoder().feed(encode_frame(command))) == [expected]


@settings(max_examples=50, deadline=None)
@given(messages(commands.MessageMetadata))
def test_metadata_are_decoded_to_themselves(metadata):
    assert commands.MessageMetadata.decode(metadata.encode()) == metadata


@pytest.mark.parametrize("kind", COMMANDS.values(), ids=lambda kind: kind.__name__)
def test_a_command_without_a_required_field_is_refused_by_its_name(kind):
    required = [
        spec.name for spec in dataclasses.fields(kind) if spec.default is dataclasses.MISSING
    ]
    if required:
        with pytest.raises(ProtocolError, match=f"{kind.__name__} has no {required[0]}"):
            kind.decode(b"")
    else:
        assert kind.decode(b"") == kind()


def test_text_that_is_not_utf8_is_refused():
    """The protobuf library returns it as bytes, without an error."""
    good = commands.ProducerSuccess(request_id=1, producer_name="abc")
    broken = good.encode().replace(b"abc", b"a\xffc")
    with pytest.raises(ProtocolError, match="UTF-8"):
        commands.ProducerSuccess.decode(broken)


def test_unknown_fields_are_ignored():
    newer = commands.Success(request_id=1).encode() + b"\xa2\x06\x03new\x28\x07"
    assert commands.Success.decode(newer) == commands.Success(request_id=1)


def test_unknown_enum_values_are_kept_as_numbers():
    error = commands.Error(request_id=1, error=999, message="")
    assert commands.Error.decode(error.encode()).error == 999


def test_a_message_has_all_its_fields_and_never_changes():
    one = commands.Error(request_id=1, error=2)
    assert (one, hash(one)) == (commands.Error(error=2, request_id=1, message=""), hash(one))
    assert len({one, commands.Error(error=2, request_id=1), dataclasses.replace(one, error=3)}) == 2
    assert one != commands.Success(request_id=1)
    assert repr(one) == "Error(request_id=1, error=2, message='')"
    for wrong in ({"request_id": 1}, {"request_id": 1, "error": 2, "mesage": ""}):
        with pytest.raises(TypeError, match=r"Error: fields missing or unknown: \['"):
            commands.Error(**wrong)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.error = 3


SECRET = b"hunter2"


@pytest.mark.parametrize(
    "message",
    [
        commands.Connect(client_version="v", auth_method_name="token", auth_data=SECRET),
        commands.AuthData(auth_method_name="token", auth_data=SECRET),
        commands.AuthResponse(response=commands.AuthData(auth_data=SECRET)),
        commands.AuthChallenge(challenge=commands.AuthData(auth_data=SECRET)),
        commands.BaseCommand(
            type=2, connect=commands.Connect(client_version="v", auth_data=SECRET)
        ),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_repr_does_not_show_secrets(message):
    assert "hunter2" not in repr(message) + str(message) + f"{[message]}"
