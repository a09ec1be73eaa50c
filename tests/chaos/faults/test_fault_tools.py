"""The tools that faults share: acts with arguments, and a hit at the first command that counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

from eos.chaos.cluster.proxy import FrameAction
from eos.chaos.cluster.target import FaultTarget
from eos.chaos.faults._fault import Proof, acts, ask, at_first
from eos.wire.messages import WireMessage


class Proxy:
    """Keeps the rule of the fault that is active."""

    rule: Callable[[Any], FrameAction]

    @contextmanager
    def fault(self, _: object, rule: Callable[[Any], FrameAction]) -> Iterator[None]:
        self.rule = rule
        yield


def test_only_the_first_command_that_counts_is_hit():
    healed: list[str] = []
    proxy = Proxy()
    target = SimpleNamespace(proxy=proxy, heal_broker=lambda: healed.append("broker"))
    with at_first(
        cast(FaultTarget, target),
        WireMessage,
        lambda command: f"command {command}",
        counts=lambda command: command > 1,
        action=FrameAction.CUT_WITHIN,
    ) as proof:
        assert proof.fired is not None
        assert proxy.rule(1) is FrameAction.PASS
        assert not proof.fired.is_set()
        assert proxy.rule(2) is FrameAction.CUT_WITHIN
        assert proof.fired.is_set()
        assert proxy.rule(3) is FrameAction.PASS
        assert proof.hit == "command 2"
        assert not healed
    assert healed == ["broker"]


def test_an_act_gets_its_target_when_it_begins():
    @acts
    def act(target: FaultTarget, text: str, *, count: int = 1) -> Iterator[Proof]:
        yield Proof(f"{target} {text} x{count}")

    with act("hit", count=2)(cast(FaultTarget, "the target")) as proof:
        assert proof.hit == "the target hit x2"


def test_asking_ends_with_a_true_answer_or_in_time():
    answers = iter(("", "", "yes"))
    assert ask(lambda: next(answers), poll_s=0.0) == "yes"
    assert ask(lambda: "", timeout_s=0.01, poll_s=0.0) == ""
