"""Clients that outlive a task: which connections the next task gets, and when they are closed."""

import pytest

from eos.client import worker_cache
from eos.client.worker_cache import MAX_CLIENTS, ClientOptions, cached_client
from eos.errors import ConnectionLost
from eos.transport.auth import Auth


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(worker_cache, "_clients", {})


def options(port: int = 6650, **others) -> ClientOptions:
    known = {"auth": Auth(), "timeout_s": 5.0, "max_pending_bytes": 1000}
    return ClientOptions(service_url=f"pulsar://127.0.0.1:{port}", **{**known, **others})


def used(wanted: ClientOptions) -> object:
    with cached_client(wanted) as client:
        return client


def is_closed(client: object) -> bool:
    return client.lookup._pool._closed


def test_the_next_task_of_a_worker_uses_the_connections_of_the_last():
    first = used(options())
    assert used(options()) is first
    assert not is_closed(first)


def test_other_options_are_another_client():
    token = options(auth=Auth(token="a"))
    assert len({id(used(wanted)) for wanted in (options(), options(6651), token)}) == 3


def test_a_client_with_a_token_function_is_closed_with_its_task():
    class Provider:
        __hash__ = None  # as in a dataclass

        def __call__(self) -> str:
            return "token"

    made = [used(options(auth=Auth(token=Provider()))) for _ in range(2)]
    assert [is_closed(client) for client in made] == [True, True]
    assert worker_cache._clients == {}


def test_two_tasks_at_once_never_share_a_client():
    with cached_client(options()) as first, cached_client(options()) as second:
        assert first is not second
    assert {is_closed(first), is_closed(second)} == {True, False}


def test_after_a_failure_the_next_task_begins_with_new_connections():
    with pytest.raises(ConnectionLost), cached_client(options()) as failed:
        raise ConnectionLost("x")
    assert is_closed(failed)
    assert used(options()) is not failed


def test_a_worker_keeps_only_so_many_and_closes_the_others():
    made = [used(options(port)) for port in range(1, MAX_CLIENTS + 3)]
    assert [is_closed(client) for client in made] == [True] * 2 + [False] * MAX_CLIENTS
