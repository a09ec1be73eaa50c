"""Keys of end-to-end encryption: where they come from, and what a hostile entry can do."""

from __future__ import annotations

import pickle
import ssl
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from hypothesis import given, settings
from hypothesis import strategies as st

from eos import Encryption
from eos.errors import (
    BrokerNotReady,
    ConfigurationError,
    DecryptionFailed,
    EosError,
    Unreachable,
    Untrusted,
)
from eos.ids import MessageId
from eos.transport import message_keys
from eos.wire import encryption
from eos.wire.batch import EncodedBatch, Entry, Message, encode_batches, rows_from_messages
from eos.wire.commands import EncryptionKeys, KeyValue, MessageMetadata
from eos.wire.encryption import MAX_KEYS, Encryptor, PublicKey, decrypted
from eos.wire.key_wrapping import unwrapped, wrapping
from tests.support.encrypted import KEY_NAMES, make_keys
from tests.support.http_server import ScriptedServer, serving

SECRET = b"the answer"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with keys."""
    return make_keys(tmp_path_factory.mktemp("keys"))


def plain_batch() -> EncodedBatch:
    (batch,) = encode_batches(rows_from_messages([Message(SECRET)]))
    return batch


def entry_for(secret: Encryption) -> Entry:
    """An entry as a broker delivers it, encrypted by ``secret``."""
    encryptor = secret.keys.encryptor()
    assert encryptor is not None
    batch = encryptor.encrypt(plain_batch())
    metadata = MessageMetadata(
        producer_name="p",
        sequence_id=0,
        publish_time=1,
        num_messages_in_batch=1,
        encryption_keys=batch.encryption_keys,
        encryption_param=batch.encryption_param,
    )
    return Entry(MessageId(1, 2), MessageMetadata.decode(metadata.encode()), bytes(batch.payload))


def opened(entry: Entry, secret: Encryption) -> bytes | None:
    """The value of its only message."""
    found = decrypted(entry, secret.keys.decryptor)
    assert found is not None
    (message,) = found[0].messages()
    return message.value


@pytest.mark.parametrize("name", KEY_NAMES)
def test_a_folder_has_the_keys(folder: Path, name: str) -> None:
    assert (
        opened(
            entry_for(Encryption(str(folder), encryption_keys=[name])),
            Encryption(f"file://{folder}"),
        )
        == SECRET
    )


def test_a_path_with_places_for_name_and_kind(folder: Path, tmp_path: Path) -> None:
    for kind in ("public", "private"):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "rsa").write_bytes((folder / f"rsa.{kind}.pem").read_bytes())
    secret = Encryption(str(tmp_path / "{kind}" / "{name}"), encryption_keys="rsa")
    assert opened(entry_for(secret), secret) == SECRET


def test_any_of_several_keys_opens_an_entry(folder: Path, tmp_path: Path) -> None:
    entry = entry_for(Encryption(str(folder), encryption_keys=KEY_NAMES))
    for name in KEY_NAMES:
        alone = tmp_path / name
        alone.mkdir()
        private = f"{name}.private.pem"
        (alone / private).write_bytes((folder / private).read_bytes())
        assert opened(entry, Encryption(str(alone))) == SECRET


def test_a_function_gets_the_metadata_of_the_public_key(folder: Path) -> None:
    asked = []

    def read(name: str, kind: str, metadata: dict[str, str]) -> bytes | PublicKey:
        asked.append((name, kind, dict(metadata)))
        pem = (folder / f"rsa.{kind}.pem").read_bytes()
        return PublicKey(pem, (("version", "3"),)) if kind == "public" else pem

    secret = Encryption(key_reader=read, encryption_keys=["any/text at all"])  # type: ignore[arg-type]
    assert opened(entry_for(secret), secret) == SECRET
    assert asked == [
        ("any/text at all", "public", {}),
        ("any/text at all", "private", {"version": "3"}),
    ]


def test_no_iv_is_used_twice(folder: Path) -> None:
    encryptor = Encryption(str(folder), encryption_keys=["rsa"]).keys.encryptor()
    assert encryptor is not None
    used = {encryptor.encrypt(plain_batch()).encryption_param for _ in range(100)}
    assert len(used) == 100


def test_new_keys_are_used_when_the_old_ones_are_too_old(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_keys(tmp_path)
    secret = Encryption(str(tmp_path), encryption_keys=["rsa"])
    old = entry_for(secret)
    make_keys(tmp_path)
    assert entry_for(secret).metadata.encryption_keys == old.metadata.encryption_keys
    later = message_keys.time.monotonic() + message_keys.KEY_LIFE_S + 1
    monkeypatch.setattr(message_keys.time, "monotonic", lambda: later)
    assert opened(entry_for(secret), secret) == SECRET
    assert entry_for(secret).metadata.encryption_keys != old.metadata.encryption_keys


# --- a hostile entry --------------------------------------------------------------------------


def test_a_name_is_no_path(folder: Path, tmp_path: Path) -> None:
    below = tmp_path / "below"
    below.mkdir()
    make_keys(tmp_path)
    entry = entry_for(Encryption(str(tmp_path), encryption_keys=["rsa"]))
    (key,) = entry.metadata.encryption_keys
    for name in ("../rsa", "/etc/passwd", "..", "", "rsa\0", "a/../rsa"):
        hostile = MessageMetadata(
            producer_name="p",
            sequence_id=0,
            publish_time=1,
            num_messages_in_batch=1,
            encryption_keys=(EncryptionKeys(key=name, value=key.value),),
            encryption_param=entry.metadata.encryption_param,
        )
        with pytest.raises(DecryptionFailed, match="no key fits"):
            opened(Entry(entry.id, hostile, entry.payload), Encryption(str(below)))


def test_an_entry_with_many_keys_costs_few_look_ups(folder: Path) -> None:
    entry = entry_for(Encryption(str(folder), encryption_keys=["rsa"]))
    (key,) = entry.metadata.encryption_keys
    asked: list[str] = []
    reader = Encryption(key_reader=lambda name, kind, metadata: asked.append(name))  # type: ignore[func-returns-value]
    many = tuple(EncryptionKeys(key=f"k{n}", value=key.value + b"%d" % n) for n in range(10_000))
    metadata = MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=1, encryption_keys=many
    )
    with pytest.raises(DecryptionFailed) as caught:
        opened(Entry(entry.id, metadata, entry.payload), reader)
    assert len(asked) == MAX_KEYS
    assert len(str(caught.value)) < 1000


def test_each_of_many_keys_opens_an_entry(folder: Path) -> None:
    """Java writes and tries any number of them."""
    pems = {kind: (folder / f"rsa.{kind}.pem").read_bytes() for kind in ("public", "private")}
    names = [f"k{n}" for n in range(MAX_KEYS)]
    entry = entry_for(
        Encryption(key_reader=lambda name, kind, metadata: pems[kind], encryption_keys=names)
    )
    for mine in (names[0], names[16], names[-1]):
        one = Encryption(
            key_reader=lambda name, kind, _, mine=mine: pems[kind] if name == mine else None  # type: ignore[misc]
        )
        assert opened(entry, one) == SECRET
    with pytest.raises(ConfigurationError, match="65 encryption_keys"):
        Encryptor({name: PublicKey(pems["public"]) for name in [*names, "more"]})


def test_few_private_keys_are_tried(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = entry_for(Encryption(str(folder), encryption_keys=["rsa"]))
    tried: list[str] = []
    monkeypatch.setattr(encryption, "unwrapped", lambda name, pem, key: tried.append(name))
    many = tuple(EncryptionKeys(key=f"k{n}", value=b"%d" % n) for n in range(MAX_KEYS))
    metadata = MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=1, encryption_keys=many
    )
    with pytest.raises(DecryptionFailed):
        opened(
            Entry(entry.id, metadata, entry.payload),
            Encryption(key_reader=lambda name, kind, metadata: b"pem"),
        )
    assert len(tried) == 16


def with_key(entry: Entry, key: EncryptionKeys) -> Entry:
    return replace(entry, metadata=replace(entry.metadata, encryption_keys=(key,)))


def test_a_hostile_writer_fills_no_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(
        encryption, "unwrapped", lambda *of: sizes.append(len(of[2])) or unwrapped(*of)
    )
    entry = entry_for(Encryption(str(folder), encryption_keys=["ec"]))
    wrap = wrapping("ec", (folder / "ec.public.pem").read_bytes())
    long_keys = [wrap(b"k" * size) for size in (200_000, 33, 3900)]
    nobody = Encryption(key_reader=lambda name, kind, metadata: None).keys.decryptor
    here = Encryption(str(folder)).keys.decryptor
    tracemalloc.start()
    try:
        for key in long_keys:
            with pytest.raises(DecryptionFailed, match="no key fits"):
                here.open(with_key(entry, EncryptionKeys(key="ec", value=key)))
        for n in range(20):
            more = (KeyValue(key="v", value=f"{n}" * 100_000),)
            for name in ("ec", f"{n}" * 100_000):
                odd = EncryptionKeys(key=name, value=b"1", metadata=more)
                with pytest.raises(DecryptionFailed, match="no key fits"):
                    nobody.open(with_key(entry, odd))
        del more, key, name, odd
        assert tracemalloc.get_traced_memory()[0] < 500_000
    finally:
        tracemalloc.stop()
    assert not here._data_keys
    assert len(sizes) == 2  # a long one costs no time


def test_a_location_is_asked_once_whatever_the_metadata_of_a_key(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = entry_for(Encryption(str(folder), encryption_keys=["rsa"]))
    (key,) = entry.metadata.encryption_keys
    secret = Encryption(str(folder), crypto_failure_action="discard")
    read, asked = secret.keys._call, []
    monkeypatch.setattr(secret.keys, "_call", lambda *of: asked.append(of) or read(*of))
    for n in range(3):
        odd = replace(key, value=b"%d" % n, metadata=(KeyValue(key="v", value=str(n)),))
        assert decrypted(with_key(entry, odd), secret.keys.decryptor) is None
    assert len(asked) == 1


@settings(max_examples=200)
@given(data=st.data())
def test_damage_is_found(folder: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(KEY_NAMES))
    secret = Encryption(str(folder), encryption_keys=[name])
    entry = entry_for(secret)
    (key,) = entry.metadata.encryption_keys
    parts = [entry.payload, key.value, entry.metadata.encryption_param or b""]
    which = data.draw(st.integers(0, 2))
    if data.draw(st.booleans()):
        parts[which] = data.draw(st.binary(max_size=400).filter(lambda new: new != parts[which]))
    else:
        at = data.draw(st.integers(0, len(parts[which]) - 1))
        flipped = parts[which][at] ^ data.draw(st.integers(1, 255))
        parts[which] = parts[which][:at] + bytes([flipped]) + parts[which][at + 1 :]
    damaged = MessageMetadata(
        producer_name="p",
        sequence_id=0,
        publish_time=1,
        num_messages_in_batch=1,
        encryption_keys=(EncryptionKeys(key=name, value=parts[1]),),
        encryption_param=parts[2],
    )
    with pytest.raises(DecryptionFailed):
        opened(Entry(entry.id, damaged, parts[0]), secret)


# --- wrong options and keys -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "one of key_location and key_reader"),
        ({"key_location": "/keys", "key_reader": print}, "one of key_location and key_reader"),
        ({"key_location": "http://keys.example.com"}, "must not be sent unencrypted"),
        ({"key_location": "https://me:hunter2@keys.example.com"}, "without user and password"),
        ({"key_location": "s3://keys"}, "a folder or an https:// URL"),
        ({"key_location": " "}, "a folder or an https:// URL"),
        ({"key_location": "-----BEGIN PRIVATE KEY-----hunter2"}, "not a key"),
        ({"key_location": "data:application/x-pem-file;base64,hunter2"}, "not a key"),
        ({"key_location": "/keys", "encryption_keys": ["../mine"]}, "part of a path"),
        ({"key_location": "/keys", "encryption_keys": [""]}, "an empty name"),
        ({"key_location": "/keys", "encryption_keys": ","}, "an empty name"),
        ({"key_reader": print, "encryption_keys": ["a", ""]}, "an empty name"),
        ({"key_location": "/keys", "crypto_failure_action": "send"}, "fail, discard, consume"),
        ({"key_reader": "x"}, "must be a function"),
    ],
    ids=str,
)
def test_wrong_options_are_refused(options: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem) as caught:
        Encryption(**options)  # type: ignore[arg-type]
    assert "hunter2" not in str(caught.value)


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    (tmp_path / "a.public.pem").write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    (tmp_path / "b.public.pem").write_text("no key")
    for name in ("a", "b"):
        with pytest.raises(ConfigurationError, match=f"public key '{name}' can't be used"):
            Encryption(str(tmp_path), encryption_keys=[name]).keys.encryptor()


def test_a_private_key_that_cannot_be_used_is_named_and_not_shown(
    folder: Path, tmp_path: Path
) -> None:
    entry = entry_for(Encryption(str(folder), encryption_keys=["rsa"]))
    (tmp_path / "rsa.private.pem").write_text("-----BEGIN PRIVATE KEY-----\nhunter2\n")
    with pytest.raises(ConfigurationError, match="private key 'rsa' can't be used") as caught:
        opened(entry, Encryption(str(tmp_path)))
    assert "hunter2" not in str(caught.value)


def test_openssls_parameters_before_a_key_on_a_curve_are_skipped(
    folder: Path, tmp_path: Path
) -> None:
    parameters = b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
    for kind in ("public", "private"):
        pem = (folder / f"ec.{kind}.pem").read_bytes()
        (tmp_path / f"ec.{kind}.pem").write_bytes(parameters + pem)
    secret = Encryption(str(tmp_path), encryption_keys=["ec"])
    assert opened(entry_for(secret), secret) == SECRET


def test_an_error_of_a_key_reader_does_not_show_its_text(folder: Path) -> None:
    def read(name: str, kind: str, metadata: object) -> bytes:
        raise RuntimeError("hunter2")

    entry = entry_for(Encryption(str(folder), encryption_keys=["rsa"]))
    with pytest.raises(ConfigurationError, match=r"key_reader failed.*RuntimeError") as caught:
        opened(entry, Encryption(key_reader=read))
    assert "hunter2" not in str(caught.value)


def test_what_is_sent_to_executors_has_no_key(folder: Path) -> None:
    secret = Encryption(str(folder), encryption_keys=["rsa"])
    opened(entry_for(secret), secret)
    text = pickle.dumps(secret)
    assert len(text) < 500
    assert b"BEGIN" not in text
    assert pickle.loads(text) == secret


# --- a key server -----------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    """A key server that is trusted, with scripted answers."""
    running, authority = ScriptedServer(), trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    running.socket = context.wrap_socket(
        running.socket, server_side=True, do_handshake_on_connect=False
    )
    with serving(running):
        yield running


def test_keys_come_from_a_web_server(server: ScriptedServer, folder: Path) -> None:
    server.answer = lambda path: (200, {}, (folder / Path(path).name).read_bytes())
    where = f"https://127.0.0.1:{server.server_port}/keys"
    secret = Encryption(where, encryption_keys=["rsa"])
    assert opened(entry_for(secret), secret) == SECRET
    assert opened(entry_for(secret), secret) == SECRET
    assert [path for path, _ in server.asked] == ["/keys/rsa.public.pem", "/keys/rsa.private.pem"]


def test_a_key_server_that_is_not_there_is_named(folder: Path) -> None:
    entry = entry_for(Encryption(str(folder), encryption_keys=["rsa"]))
    nowhere = Encryption("https://127.0.0.1:1/keys", crypto_failure_action="discard")
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1") as caught:
        opened(entry, nowhere)
    assert "key_location" in caught.value.hint


def test_a_key_server_that_is_not_trusted_is_refused(
    server: ScriptedServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = entry_for(Encryption(str(folder), encryption_keys=["rsa"]))
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(Untrusted, match="certificate"):
        opened(entry, Encryption(f"https://127.0.0.1:{server.server_port}/untrusted"))


@pytest.mark.parametrize(
    ("status", "error"),
    [(404, DecryptionFailed), (503, BrokerNotReady), (403, ConfigurationError)],
)
def test_a_server_that_is_down_does_not_make_an_entry_undecryptable(
    server: ScriptedServer, folder: Path, status: int, error: type[EosError]
) -> None:
    entry = entry_for(Encryption(str(folder), encryption_keys=["rsa"]))
    server.give(status)
    where = f"https://127.0.0.1:{server.server_port}/{status}"
    action = "fail" if status == 404 else "discard"
    with pytest.raises(error):
        opened(entry, Encryption(where, crypto_failure_action=action))  # type: ignore[arg-type]
