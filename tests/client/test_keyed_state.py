"""State by key in a compacted topic: one owner, all or nothing with its outputs."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eos import KeyedState, PulsarClient
from eos.client import Transaction
from eos.client._entry_producer import EntryProducer
from eos.client._producer_factory import ProducerFactory
from eos.client._state_store import COLUMNS, MemoryStore, SqliteStore, changes_of
from eos.errors import (
    BrokerNotReady,
    ConfigurationError,
    EosError,
    Fatal,
    Fenced,
    Indeterminate,
    InputError,
    RequestTimeout,
    TransactionPoisoned,
    Unauthorized,
)
from eos.testing import PulsarStandalone
from eos.wire.commands import CloseProducer, ProducerAccessMode, TxnAction
from tests.support.admin import call
from tests.support.expiry import await_expiry
from tests.support.judge import drain

Opened = Callable[..., KeyedState]


@pytest.fixture
def topic(name: str) -> str:
    """This test's topic."""
    return f"persistent://public/default/{name}"


@pytest.fixture
def opened(client: PulsarClient, topic: str) -> Iterator[Opened]:
    """A function that opens the state of this test's topic, as its newest owner."""
    states: list[KeyedState] = []

    def open_it(**options: Any) -> KeyedState:
        states.append(KeyedState(options.pop("client", client), topic, **options))
        return states[-1]

    yield open_it
    for state in states:
        state.close()


def change(state: KeyedState, **values: bytes | None) -> None:
    """Put, and delete where the value is None, in one transaction."""
    with state.transaction() as txn:
        for key, value in values.items():
            if value is None:
                state.delete(key, txn)
            else:
                state.put(key, value, txn)


def compact(broker: PulsarStandalone, name: str) -> None:
    """Compact a topic, and wait for it."""
    path = f"/v2/persistent/public/default/{name}/compaction"
    broker.admin("PUT", path)
    deadline = time.monotonic() + 30
    while broker.admin("GET", path)["status"] != "SUCCESS":
        assert time.monotonic() < deadline
        time.sleep(0.05)


def unload(broker: PulsarStandalone, name: str, state: KeyedState) -> None:
    """Unload a topic, until its owner has lost its producer."""
    broker.admin("PUT", f"/v2/persistent/public/default/{name}/unload")
    while state._owner.producer.is_usable:
        time.sleep(0.01)


# --- reading and changing ---------------------------------------------------------------------


@pytest.mark.parametrize("spill", [False, True])
def test_changes_are_seen_in_their_transaction_and_stay_with_its_commit(opened, tmp_path, spill):
    state = opened(spill_folder=tmp_path if spill else None)
    assert (len(state), list(state), state.get("a"), "a" in state) == (0, [], None, False)
    with state.transaction() as txn:
        state.put("a", b"1", txn)
        state.put("b", b"2", txn)
        state.put("empty", b"", txn)
        assert (state["a"], len(state), sorted(state)) == (b"1", 3, ["a", "b", "empty"])
    with state.transaction() as txn:
        state.put("a", b"3", txn)
        state.delete("b", txn)
        state.delete("never", txn)
        assert dict(state) == {"a": b"3", "empty": b""}
        assert len(state) == 2
        txn.abort()
    assert dict(state) == {"a": b"1", "b": b"2", "empty": b""}
    change(state, a=b"4", b=None, c=b"5")
    assert dict(state) == {"a": b"4", "empty": b"", "c": b"5"}
    with pytest.raises(KeyError):
        state["b"]
    state.close()
    assert dict(opened()) == {"a": b"4", "empty": b"", "c": b"5"}
    assert not list(tmp_path.glob("*/*"))


def test_a_block_that_raises_changes_nothing(opened):
    state = opened()
    change(state, a=b"1")
    with pytest.raises(UnicodeDecodeError), state.transaction() as txn:
        state.put("a", b"2", txn), state.put("b", b"\xff".decode().encode(), txn)
    assert dict(state) == {"a": b"1"}
    assert dict(opened()) == {"a": b"1"}


def test_other_clients_read_each_change_once_per_transaction(
    opened, pulsar_standalone: PulsarStandalone, topic: str
):
    state = opened()
    with state.transaction() as txn:
        for n in range(100):
            state.put("counted", b"%d" % n, txn)
        state.put("other", b"x", txn)
    change(state, other=None)
    state.close()  # else nobody else may write there
    seen = [
        (one.key, one.value, one.properties.get("eos.state"))
        for one in drain(pulsar_standalone.service_url, topic)
    ]
    assert [one for one in seen if one[0] != "__eos.owner"] == [
        ("counted", b"99", None),
        ("other", b"x", None),
        ("other", b"deleted", "deleted"),
    ]


def test_two_states_are_changed_in_one_transaction(client, opened, topic):
    one = opened()
    with KeyedState(client, topic + "-2") as two:
        with client.transaction() as txn:
            one.put("k", b"1", txn)
            two.put("k", b"2", txn)
        txn = client.transaction()
        one.put("k", b"3", txn)
        two.put("k", b"4", txn)
        txn.abort()
        assert (one["k"], two["k"]) == (b"1", b"2")


def test_one_transaction_at_a_time(client, opened):
    state = opened()
    with client.transaction() as first:
        state.put("a", b"1", first)
        second = client.transaction()
        with pytest.raises(Fatal, match="uses this state"):
            state.put("a", b"2", second)
        with pytest.raises(TransactionPoisoned):
            second.commit()
    assert state["a"] == b"1"
    with pytest.raises(Fatal, match="was committed"):
        first.commit()  # again


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("", b"1", "not empty"),
        (None, b"1", "text or bytes"),
        (7, b"1", "text or bytes"),
        (b"bytes", b"1", "All keys"),
        ("\ud800", b"1", "can't be written"),
        ("__eos.owner", b"1", "used by the state itself"),
        ("a", "text", "must be bytes"),
        ("a", bytes(6_000_000), "bytes"),
    ],
)
def test_what_can_not_be_stored_is_refused_and_its_transaction_not_committed(
    opened, key, value, message
):
    state = opened()
    change(state, a=b"1")
    txn = state.transaction()
    state.put("b", b"2", txn)
    with pytest.raises(InputError, match=message):
        state.put(key, value, txn)
    with pytest.raises(TransactionPoisoned):
        txn.commit()
    assert dict(state) == {"a": b"1"}


def test_keys_of_bytes(client, opened):
    state = opened()
    with state.transaction() as txn:
        state.put(b"\xff\x00", b"1", txn)
        state.put(b"gone", b"1", txn)
    with state.transaction() as txn:
        state.delete(b"gone", txn)
    again = opened()
    assert dict(again) == {b"\xff\x00": b"1"}
    txn = again.transaction()
    with pytest.raises(InputError, match="All keys"):
        again.put("text", b"", txn)


def test_only_what_is_committed_decides_the_kind_of_keys(opened):
    state = opened()
    with state.transaction() as txn:
        state.put(b"k", b"1", txn)
        txn.abort()
    with pytest.raises(InputError, match="must be bytes"), state.transaction() as txn:
        state.put(b"k", "text", txn)
    change(state, a=b"1")
    change(state, a=None)  # the topic still has it
    with pytest.raises(InputError, match="All keys"), state.transaction() as txn:
        state.put(b"k", b"1", txn)


# --- what others do with the topic --------------------------------------------------------------


def test_a_compacted_topic_gives_the_same_state(opened, pulsar_standalone, name):
    state = opened()
    for n in range(20):
        change(state, **{f"k{n % 5}": b"%d" % n, "gone": b"1", "empty": b"x"})
    change(state, gone=None, empty=b"")
    expected = {**{f"k{n % 5}": b"%d" % n for n in range(20)}, "empty": b""}
    compact(pulsar_standalone, name)
    assert dict(opened()) == expected
    again = opened()
    change(again, k0=None, new=b"1")
    compact(pulsar_standalone, name)
    del expected["k0"]
    assert dict(opened()) == {**expected, "new": b"1"}


def test_the_broker_keeps_what_was_not_compacted(opened, client, pulsar_standalone, topic, name):
    change(opened(), a=b"1")
    stats = pulsar_standalone.admin("GET", f"/v2/persistent/public/default/{name}/internalStats")
    assert list(stats["cursors"]) == ["__compaction"]
    client.close()
    for _ in range(2):  # a closed ledger is deleted if no subscription needs it
        call(pulsar_standalone.admin_url, "PUT", f"/v2/persistent/public/default/{name}/unload")
        with PulsarClient(pulsar_standalone.service_url) as other:
            with KeyedState(other, topic) as state:
                assert dict(state) == {"a": b"1"}
            call(pulsar_standalone.admin_url, "POST", f"/v2/persistent/public/default/{name}/trim")
    with PulsarClient(pulsar_standalone.service_url) as other, KeyedState(other, topic) as state:
        assert dict(state) == {"a": b"1"}


def test_who_may_not_subscribe_by_that_name_gets_the_command_that_does(
    client, opened, monkeypatch, caplog
):
    def refuse(*_: object) -> None:
        raise Unauthorized("The subscription must begin with the role.")

    monkeypatch.setattr(client, "subscribe_durably", refuse)
    change(opened(), a=b"1")
    assert "create-subscription -s __compaction -m earliest persistent://" in caplog.text


def test_foreign_messages(client, opened, topic):
    opened().close()
    with closing(client.producer(topic)) as producer:
        producer.send(b"without a key").result()
        producer.send(b"1", key="a").result()
        producer.send(b"2", key="b").result()
        producer.send(None, key="a").result()
        producer.send(b"nonsense", key="c", properties={"eos.state": "owner"}).result()
        producer.send(b"3", key="d", properties={"theirs": "1"}).result()
    assert dict(opened()) == {"b": b"2", "d": b"3"}
    with closing(client.producer(topic + "-mixed", create=True)) as producer:
        producer.send(b"1", key="a").result()
        producer.send(b"1", key=b"a").result()
    with pytest.raises(InputError, match="several kinds"):
        KeyedState(client, topic + "-mixed")


def test_progress(client, opened, topic, monkeypatch):
    with closing(client.producer(topic, create=True, max_batch_messages=10)) as producer:
        for n in range(1000):
            producer.send(b"%d" % n, key=f"k{n}")
    monkeypatch.setattr("eos.client._keyed_state._PROGRESS_S", 0.0)
    seen: list[int] = []
    assert len(opened(on_progress=seen.append)) == 1000
    assert seen == sorted(seen)
    assert 1000 <= seen[-1] <= 1002  # with two marks of the owner


# --- owners -----------------------------------------------------------------------------------


@pytest.fixture
def other(pulsar_standalone: PulsarStandalone) -> Iterator[PulsarClient]:
    """Another process's client, as far as the broker can tell."""
    with PulsarClient(pulsar_standalone.service_url, timeout_s=20) as client:
        yield client


@pytest.mark.parametrize("is_sent", [True, False])
def test_a_new_owner_ends_the_transaction_of_the_one_before(
    client, opened, other, topic, pulsar_standalone, is_sent
):
    old = opened(client=other)
    change(old, a=b"1")
    out = other.producer(topic + "-out", create=True)
    txn = old.transaction(timeout_s=600)
    old.put("a", b"2", txn)
    out.send(b"output", txn=txn).result(20)
    with closing(client.producer(topic + "-in", create=True)) as producer:
        producer.send(b"input").result()
    inputs = other.consumer(topic + "-in", "s")
    inputs.acknowledge(inputs.receive_batch(1, 20), txn)
    inputs.close()
    if is_sent:
        old.send_lingering()  # as a commit does, before END_TXN
    with client.consumer(topic + "-in", "s") as again:
        began = time.monotonic()
        new = opened(inputs=again)
        assert time.monotonic() - began < 60  # not its time to live
        assert dict(new) == {"a": b"1"}
        # The acknowledgement was the transaction's: the message comes again, and once.
        assert again.receive(20) is not None
        assert again.receive(0.3) is None
    with pytest.raises((TransactionPoisoned, Indeterminate)):
        txn.commit()
    change(new, a=b"3")
    assert drain(pulsar_standalone.service_url, topic + "-out") == []
    with pytest.raises(EosError):  # the broker has closed its producer, and does not say so
        old.transaction().commit()
    with pytest.raises(Fenced):
        old.transaction()
    assert dict(opened()) == {"a": b"3"}


def test_inputs_that_others_may_acknowledge_are_refused(client, opened, topic):
    client.create_unpartitioned(topic + "-in")
    with (
        client.consumer(topic + "-in", "s", type="shared") as shared,
        pytest.raises(ConfigurationError, match="exclusive"),
    ):
        opened(inputs=shared)


@pytest.mark.parametrize("changes", [True, False])
def test_an_old_owner_can_not_commit(opened, other, topic, pulsar_standalone, changes):
    """Also one that has only read the state: its outputs would come from an old one."""
    old = opened(client=other)
    change(old, a=b"1")
    txn = old.transaction()
    out = other.producer(topic + "-out", create=True)
    out.send(b"old " + old["a"], txn=txn).result(20)
    change(opened(), a=b"2")
    if changes:
        old.put("a", b"3", txn)
    with pytest.raises((TransactionPoisoned, Indeterminate)):
        txn.commit()
    assert dict(opened()) == {"a": b"2"}
    assert drain(pulsar_standalone.service_url, topic + "-out") == []


def test_an_old_owner_can_not_begin_a_transaction(opened, other):
    old = opened(client=other)
    change(old, a=b"1")
    change(opened(), a=b"2")
    with pytest.raises(EosError):  # the broker has closed its producer, and does not say so
        change(old, a=old["a"] + b"1")
    with pytest.raises(Fenced):
        old.transaction()
    assert dict(opened()) == {"a": b"2"}


def test_an_owner_goes_on_after_its_topic_has_moved(opened, pulsar_standalone, name):
    state = opened()
    change(state, a=b"1")
    epoch = state._owner.producer.topic_epoch
    for n in range(3):
        unload(pulsar_standalone, name, state)
        change(state, a=b"%d" % n, b=b"1")
    assert state._owner.producer.topic_epoch == epoch
    assert dict(opened()) == {"a": b"2", "b": b"1"}


def test_an_owner_that_was_replaced_while_it_had_no_producer_is_fenced(
    opened, other, pulsar_standalone, name
):
    """It leaves no mark then, which would fence the newer owner."""
    old = opened()
    change(old, a=b"1")
    unload(pulsar_standalone, name, old)
    new = opened(client=other)
    change(new, a=b"2")
    unload(pulsar_standalone, name, new)
    with pytest.raises(Fenced):
        old.transaction()
    change(new, b=b"3")
    assert dict(opened()) == {"a": b"2", "b": b"3"}


def test_a_topic_that_moves_in_a_transaction_costs_this_transaction(
    opened, pulsar_standalone, name
):
    state = opened()
    change(state, a=b"1")
    txn = state.transaction()
    state.put("a", b"2", txn)
    unload(pulsar_standalone, name, state)
    with pytest.raises(TransactionPoisoned):
        txn.commit()
    assert dict(state) == {"a": b"1"}
    change(state, a=b"3")
    assert dict(state) == {"a": b"3"}


@pytest.mark.parametrize("action", list(TxnAction))
def test_after_a_commit_in_doubt_the_state_is_that_of_the_topic(
    opened, client, monkeypatch, action
):
    state = opened()
    change(state, a=b"1")
    end = client.coordinators.end

    def lost(txn, _, *, timeout_s):
        end(txn, action, timeout_s=timeout_s)
        raise RequestTimeout("The answer is lost.")

    with monkeypatch.context() as patch:
        patch.setattr(client.coordinators, "end", lost)
        patch.setattr("eos.client._transaction.END_DEADLINE_S", 4.0)
        txn = state.transaction()
        state.put("a", b"2", txn)
        with pytest.raises(Indeterminate):
            txn.commit()
    assert dict(state) == {"a": b"2" if action is TxnAction.COMMIT else b"1"}
    change(state, b=b"3")
    assert dict(opened()) == dict(state)


def test_a_closed_state(opened):
    state = opened()
    txn: Transaction = state.transaction()
    state.put("a", b"1", txn)
    state.close()
    state.close()
    with pytest.raises(TransactionPoisoned):
        txn.commit()
    assert dict(opened()) == {}


def test_an_interrupted_commits_changes_do_not_come_with_the_next_one(
    client, opened, name, monkeypatch
):
    """Ctrl-C while the commit waits: its inputs come again, and are counted once."""
    with client.producer(f"{name}-words", create=True) as words:
        words.send(b"", key="a").result()
    real, calls = Transaction._flush, []

    def flush(self) -> None:
        calls.append(self)
        if len(calls) == 1:
            raise KeyboardInterrupt
        real(self)

    monkeypatch.setattr(Transaction, "_flush", flush)
    with client.consumer(f"{name}-words", "counter") as inputs:
        state = opened(inputs=inputs)

        def count() -> None:
            messages = inputs.receive_batch(10, 10)
            with state.transaction(timeout_s=30) as txn:
                for message in messages:
                    state.put(message.key, b"%d" % (int(state.get(message.key, b"0")) + 1), txn)
                inputs.acknowledge(messages, txn)

        with pytest.raises(KeyboardInterrupt):
            count()
        assert dict(state) == {}
        calls[0].abort()
        count()
        assert dict(state) == {"a": b"1"}


# --- stores -----------------------------------------------------------------------------------


@pytest.mark.timeout(500)
def test_of_owners_that_open_at_the_same_moment_one_is_left(pulsar_standalone, name):
    """A broker lets two producers in that fence each other at the same moment."""
    rounds, owners = 12, 3
    accepted: list[tuple[int, int]] = []
    gate = threading.Barrier(owners)

    def own() -> None:
        with PulsarClient(pulsar_standalone.service_url, timeout_s=10) as client:
            KeyedState(client, f"{name}-{threading.get_ident()}").close()  # connects
            for number in range(rounds):
                gate.wait(150)  # a commit without an answer takes 30 s
                with contextlib.suppress(EosError), KeyedState(client, f"{name}-{number}") as state:
                    ends = time.monotonic() + 1.0
                    while time.monotonic() < ends:
                        with state.transaction() as txn:
                            count = int(state.get("count", b"0")) + 1
                            state.put("count", b"%d" % count, txn)
                        accepted.append((number, count))

    with ThreadPoolExecutor(owners) as pool:
        for done in [pool.submit(own) for _ in range(owners)]:
            done.result(300)
    assert len(accepted) == len(set(accepted))  # nobody has counted from an old value
    assert {number for number, _ in accepted} == set(range(rounds))


def test_owners_whose_producers_the_broker_keeps_both_are_one_in_the_end(
    client, other, opened, topic, monkeypatch
):
    """As if both had been opened at the same moment: then brokers keep both (measured)."""
    client.create_unpartitioned(topic)
    open_one = ProducerFactory.open_one
    kept: set[ProducerFactory] = set()

    def keep_both(factory: ProducerFactory, *args: Any, **options: Any) -> EntryProducer:
        if factory not in kept:
            kept.add(factory)
            with contextlib.suppress(BrokerNotReady):
                return open_one(factory, *args, **options | {"access": ProducerAccessMode.SHARED})
        return open_one(factory, *args, **options)

    monkeypatch.setattr(ProducerFactory, "open_one", keep_both)
    states = [opened(client=one) for one in (client, other)]
    commits = 0
    for state in states:
        with contextlib.suppress(EosError):
            change(state, count=state.get("count", b"") + b"1")
            commits += 1
    assert commits == 1
    assert dict(opened()) == {"count": b"1"}


def test_an_owner_sends_no_close_of_a_producer(opened, other, monkeypatch):
    """Beside an open that fences the producer, it can stop the broker for good (measured)."""
    closed: list[str] = []
    command = EntryProducer._close_command

    def noted(producer: EntryProducer, request_id: int) -> CloseProducer:
        if producer._connection.is_alive:
            closed.append(producer.topic)
        return command(producer, request_id)

    monkeypatch.setattr(EntryProducer, "_close_command", noted)
    old = opened(client=other)
    change(old, a=b"1")
    new = opened()
    with pytest.raises(EosError):
        change(old, a=b"2")
    for state in (old, new):
        state.close()
    assert not [one for one in closed if one == new.topic]
    other.producer(new.topic).close()
    assert closed == [new.topic]


@pytest.mark.parametrize("after", ["nothing", "an empty topic", "a new state"])
def test_a_state_whose_topic_was_deleted_is_not_changed_any_more(
    opened, pulsar_standalone, name, after
):
    with PulsarClient(pulsar_standalone.service_url, timeout_s=5) as impatient:
        state = opened(client=impatient)
        for _ in range(3):
            state.close()
            state = opened(client=impatient)  # with a higher epoch than the next topic's owner
        change(state, a=b"1")
        pulsar_standalone.admin("DELETE", f"/v2/persistent/public/default/{name}?force=true")
        if after == "an empty topic":
            pulsar_standalone.admin("PUT", f"/v2/persistent/public/default/{name}")
        while state._owner.producer.is_usable:
            time.sleep(0.01)
        new = opened() if after == "a new state" else None
        if new is not None:
            change(new, a=b"new")
            unload(pulsar_standalone, name, new)
        why = "newer owner" if new is not None else r"was deleted.*dict\(state\)"
        for _ in range(2):
            with pytest.raises(Fatal, match=why):
                change(state, b=b"2")
        assert dict(state) == {"a": b"1"}
        new = new or opened()
        change(new, **dict(state))
        assert dict(opened()) == {"a": b"1"}


def test_nothing_is_sent_in_a_transaction_before_its_mark_is_stored(opened, monkeypatch):
    """A successor would not know it, and its outputs would be hidden until it expires."""
    state = opened()
    with monkeypatch.context() as patch:
        patch.setattr(EntryProducer, "on_send_receipt", lambda *_: None)
        patch.setattr(state._owner.producer._window, "_timeout_s", 0.5)
        with pytest.raises(RequestTimeout):
            state.transaction()
    change(state, a=b"1")
    assert dict(opened()) == {"a": b"1"}


def test_a_compaction_during_a_restore_does_not_end_it(opened, pulsar_standalone, name):
    """It may leave the last mark alone."""
    state = opened()
    change(state, a=b"1")
    read_to = state._read_to

    def overtaken(reader, own, count):
        compact(pulsar_standalone, name)
        state._read_to = read_to
        with state._client.reader(state.topic, columns=COLUMNS, read_compacted=True) as fresh:
            return read_to(fresh, own, count)

    state._read_to = overtaken
    state._is_current = False
    assert dict(state) == {"a": b"1"}
    change(state, b=b"2")
    assert dict(opened()) == {"a": b"1", "b": b"2"}


def test_a_file_of_a_state_has_no_name(opened, tmp_path):
    """It is gone with its process, however that ends."""
    state = opened(spill_folder=tmp_path / "new")
    change(state, a=b"1")
    assert dict(state) == {"a": b"1"}
    assert not list((tmp_path / "new").iterdir())


def test_a_full_disk_is_an_error_until_there_is_room(opened, tmp_path):
    state = opened(spill_folder=tmp_path)
    change(state, kept=b"1")
    state._store._database.execute("PRAGMA max_page_count = 3")  # a disk that is full
    change(state, large=b"x" * 100_000)
    with pytest.raises(Fatal, match=r"disk is full.*Make room"):
        state.get("large")
    assert state["kept"] == b"1"  # in a new file
    assert len(state["large"]) == 100_000


def test_a_damaged_file_is_an_error_and_then_a_new_one(opened, tmp_path):
    state = opened(spill_folder=tmp_path)
    change(state, kept=b"1")
    assert dict(state) == {"kept": b"1"}
    state._store._database.execute("DROP TABLE state")  # all further reads fail
    with pytest.raises(Fatal, match=r"The state's file.*restores the state"):
        state.get("kept")
    assert state["kept"] == b"1"


def test_a_dropped_transaction_that_has_expired_is_not_in_the_way(client, opened):
    state = opened()
    dropped = client.transaction(timeout_s=9.0)
    state.put("a", b"lost", dropped)
    with pytest.raises(Fatal, match=r"uses this state.*Commit or abort it"):
        state.use_in(client.transaction())
    await_expiry(client, dropped.id)
    change(state, b=b"kept")
    assert dict(state) == {"b": b"kept"}


def test_a_foreign_message_with_the_key_of_marks_is_no_key(client, opened, topic):
    opened().close()
    with client.producer(topic) as producer:
        producer.send(b"foreign", key="__eos.owner")
    assert dict(opened()) == {}


@given(
    st.lists(
        st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=2),
            st.none() | st.binary(max_size=3),
        ),
        max_size=6,
    ),
    st.integers(1, 4),
)
@settings(max_examples=60, deadline=None)
def test_both_stores_are_dictionaries(tmp_path_factory, monkeypatch_module, steps, page):
    monkeypatch_module.setattr("eos.client._state_store._PAGE_ROWS", page)
    expected: dict[str, bytes] = {}
    memory, file = MemoryStore(), SqliteStore(Path(tmp_path_factory.mktemp("spill")))
    for changes in steps:
        for key, value in changes.items():
            if value is None:
                expected.pop(key, None)
            else:
                expected[key] = value
        for store in (memory, file):
            store.apply(changes)
            assert {key: store.get(key) for key in store} == expected
            assert len(store) == len(expected)
            assert store.get("none of them") is None
    for store in (memory, file):
        store.clear()
        assert (list(store), len(store)) == ([], 0)
        store.close()


FOREIGN = st.tuples(
    st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=2),
    st.none() | st.binary(max_size=3) | st.just(b"-"),
    st.dictionaries(
        st.sampled_from(["eos.state", "other", ""]),
        st.sampled_from(["owner", "deleted", "empty", "", "x"]),
    ),
)


@given(st.lists(FOREIGN, max_size=8))
@settings(max_examples=200, deadline=None)
def test_messages_of_anybody_change_the_keys_that_they_name(messages):
    expected, owner = {}, ""
    for key, value, properties in messages:
        mark = properties.get("eos.state")
        if mark == "owner":
            owner = owner if value in (None, b"", b"-") else value.decode(errors="replace")
        elif key is not None:
            expected[key] = value if mark is None else b"" if mark == "empty" else None
    pairs = pa.map_(pa.string(), pa.string())
    batch = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([key and key.encode() for key, _, _ in messages], pa.binary()),
            "key_is_binary": pa.array([False] * len(messages), pa.bool_()),
            "value": pa.array([value for _, value, _ in messages], pa.binary()),
            "properties": pa.array([list(some.items()) for _, _, some in messages], pairs),
        }
    )
    changes = changes_of(batch, "t", None)
    assert (changes.values, changes.txn) == (expected, owner)


@pytest.fixture(scope="module")
def monkeypatch_module() -> Iterator[pytest.MonkeyPatch]:
    """Of the module, as hypothesis asks for."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch
