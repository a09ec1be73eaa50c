"""The protocol with one rule broken at a time: the search must catch each, which shows its use."""

from __future__ import annotations

from dataclasses import dataclass, replace

from eos.errors import UnfinishedEpoch
from eos.protocol import (
    AppendState,
    EndPart,
    State,
    StayInDoubt,
)
from eos.protocol import (
    Known as WhatIsKnown,
)
from eos.pulsar.end_rules import (
    DataAnswer,
    EndAnswer,
    EndTransaction,
    FindMark,
    MarkAnswer,
    WitnessAnswer,
)
from tests.model.records import Entry, Log
from tests.model.rules import Known, Next, Rules
from tests.model.world import Faults

_REAL = Rules()


@dataclass(frozen=True)
class Mutant:
    """A broken rule. ``breaks``: the missing rule. ``faults``: the faults that reveal it."""

    name: str
    breaks: str
    rules: Rules
    faults: Faults


def _ended_means_committed(entry: Entry, answers: Known) -> Next:
    if entry.state is State.PREPARED and answers.end is EndAnswer.ENDED:
        return AppendState(State.COMMITTED)
    return _REAL.next_action(entry, answers)


def _ended_means_expired(entry: Entry, answers: Known) -> Next:
    if entry.state is State.PREPARED and answers.end is EndAnswer.ENDED:
        return AppendState(State.ABORTED, expired=True)
    return _REAL.next_action(entry, answers)


def _silence_means_ok(entry: Entry, answers: Known) -> Next:
    if answers.end is EndAnswer.OTHER:
        answers = replace(answers, end=EndAnswer.OK)
    return _REAL.next_action(entry, answers)


def _deadline_means_aborted(entry: Entry, answers: Known) -> Next:
    action = _REAL.next_action(entry, answers)
    if isinstance(action, StayInDoubt) and entry.state is State.PREPARED:
        return AppendState(State.ABORTED, expired=True)
    return action


def _mark_not_looked_for(entry: Entry, answers: Known) -> Next:
    action = _REAL.next_action(entry, answers)
    if isinstance(action, FindMark):
        return EndTransaction(commit=entry.state is State.PREPARED)
    return action


def _missing_mark_ignored(entry: Entry, answers: Known) -> Next:
    if answers.mark is MarkAnswer.ABSENT:
        answers = replace(answers, mark=MarkAnswer.FOUND)
    return _REAL.next_action(entry, answers)


def _open_is_committed(entry: Entry, answers: Known) -> Next:
    if entry.state is State.OPEN:
        return AppendState(State.PREPARED)
    return _REAL.next_action(entry, answers)


def _open_is_ended_unlogged(entry: Entry, answers: Known) -> Next:
    if entry.state is State.OPEN and answers.end is EndAnswer.NOT_ASKED:
        return EndTransaction(commit=False)
    return _REAL.next_action(entry, answers)


def _prepared_is_aborted(entry: Entry, answers: Known) -> Next:
    if entry.state is State.PREPARED and answers.mark is MarkAnswer.NOT_ASKED:
        return AppendState(State.ABORTED, expired=True)
    return _REAL.next_action(entry, answers)


def _prepared_is_ended_with_abort(entry: Entry, answers: Known) -> Next:
    action = _REAL.next_action(entry, answers)
    if isinstance(action, EndTransaction) and answers.end is EndAnswer.OTHER:
        return EndTransaction(commit=False)
    return action


def _no_sentinel(*, mark: bool, sentinel: bool, receipt: bool) -> WitnessAnswer:
    del sentinel
    return _REAL.witness(mark=mark, sentinel=True, receipt=receipt)


def _gone_means_absent(*, mark: bool, sentinel: bool, receipt: bool) -> WitnessAnswer:
    del mark
    return _REAL.witness(mark=True, sentinel=sentinel, receipt=receipt)


def _always_runs(log: Log, epoch: int) -> int | None:
    attempts = [entry.attempt for entry in log if entry.epoch == epoch]
    return max(attempts, default=0) + 1


def _unfinished_runs_again(log: Log, epoch: int) -> int | None:
    newest = next((one for one in reversed(log) if one.epoch == epoch), None)
    if newest is not None and newest.state in (State.OPEN, State.PREPARED, State.ABORTING):
        return newest.attempt + 1
    return _REAL.attempt_to_run(log, epoch)


def _unfinished_is_skipped(log: Log, epoch: int) -> int | None:
    newest = next((one for one in reversed(log) if one.epoch == epoch), None)
    if newest is not None and newest.state in (State.OPEN, State.PREPARED, State.ABORTING):
        return None
    return _REAL.attempt_to_run(log, epoch)


def _as_counted(copies: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The roll call's answers that match the task summaries."""
    return tuple((copy,) if copy >= 0 else () for copy in copies)


def _extra_answers_ignored(
    copies: tuple[int, ...], errors: tuple[bool, ...], answers: tuple[tuple[int, ...], ...]
) -> bool:
    del answers
    return _REAL.is_poisoned(copies, errors, _as_counted(copies))


def _errors_forgiven(
    copies: tuple[int, ...], errors: tuple[bool, ...], answers: tuple[tuple[int, ...], ...]
) -> bool:
    del answers
    forgiven = tuple(False for _ in errors)
    return _REAL.is_poisoned(copies, forgiven, _as_counted(copies))


def _absence_of_data_proves(entry: Entry, answers: Known) -> Next:
    if entry.state is State.PREPARED and answers.data is DataAnswer.UNPROVED:
        return AppendState(State.ABORTED, expired=True)
    return _REAL.next_action(entry, answers)


def _prepared_without_mark_is_aborted(entry: Entry, answers: Known) -> Next:
    if entry.state is State.PREPARED and answers.mark is MarkAnswer.ABSENT:
        return AppendState(State.ABORTED, expired=True)
    return _REAL.next_action(entry, answers)


def _follows_what_failed(log: Log, epoch: int) -> int | None:
    try:
        return _REAL.attempt_to_run(log, epoch)
    except UnfinishedEpoch:
        return 1


def _table_first(entry: Entry, answers: Known) -> Next:
    if entry.state is State.PREPARED and answers.table is None:
        return EndPart(1, commit=True)
    return _REAL.next_action(entry, answers)


def _table_forgotten(entry: Entry, answers: Known) -> Next:
    action = _REAL.next_action(entry, answers)
    if isinstance(action, EndPart) and action.commit:
        return AppendState(State.COMMITTED)
    return action


def _files_left(entry: Entry, answers: Known) -> Next:
    action = _REAL.next_action(entry, answers)
    if isinstance(action, EndPart) and not action.commit:
        return AppendState(State.ABORTED)
    return action


def _aborted_behind_a_commit(entry: Entry, answers: Known) -> Next:
    table = answers.table
    silent = table is not None and table.known is WhatIsKnown.UNKNOWN
    if entry.state is State.PREPARED and silent:
        return AppendState(State.ABORTING, expired=True)
    return _REAL.next_action(entry, answers)


_TWO = Faults(lives=2)
_CRASH = Faults(lives=2, crashes=1)
_REPLY = Faults(lives=1, replies=1)
_TASK = Faults(lives=1, tasks=1)


MUTANTS = (
    Mutant("fence_dropped", "an append needs that nobody else appended", Rules(fence=False), _TWO),
    Mutant(
        "recovery_left_out",
        "after a claim everything unfinished is ended first",
        Rules(finishes_first=False, attempt_to_run=_unfinished_runs_again),
        _CRASH,
    ),
    Mutant(
        "unfinished_skipped",
        "an unfinished epoch is not skipped",
        Rules(finishes_first=False, attempt_to_run=_unfinished_is_skipped),
        _CRASH,
    ),
    Mutant(
        "committed_epoch_runs_again",
        "a committed epoch is skipped",
        Rules(attempt_to_run=_always_runs),
        _TWO,
    ),
    Mutant(
        "not_found_means_committed",
        "after 24 or 21 the witness is asked",
        Rules(next_action=_ended_means_committed),
        Faults(lives=1, expiries=1),
    ),
    Mutant(
        "not_found_means_expired",
        "after 24 or 21 the witness is asked",
        Rules(next_action=_ended_means_expired),
        _REPLY,
    ),
    Mutant(
        "silence_means_ok",
        "only an OK is an OK",
        Rules(next_action=_silence_means_ok),
        _REPLY,
    ),
    Mutant(
        "deadline_means_aborted",
        "what can't be proved stays in doubt",
        Rules(next_action=_deadline_means_aborted),
        _REPLY,
    ),
    Mutant(
        "no_mark",
        "the mark is found before END_TXN goes out",
        Rules(next_action=_mark_not_looked_for),
        Faults(lives=2, crashes=1, wipes=1),
    ),
    Mutant(
        "missing_mark_ignored",
        "without the mark nothing is ended by number",
        Rules(next_action=_missing_mark_ignored),
        Faults(lives=2, crashes=1, wipes=1),
    ),
    Mutant(
        "no_sentinel", "a missing receipt needs a sentinel", Rules(witness=_no_sentinel), _REPLY
    ),
    Mutant(
        "lost_history_means_absent",
        "a receipt is missed only behind its mark",
        Rules(witness=_gone_means_absent),
        Faults(lives=1, replies=1, trims=1),
    ),
    Mutant(
        "open_is_committed",
        "only the driver that checked the tasks may prepare",
        Rules(next_action=_open_is_committed),
        _CRASH,
    ),
    Mutant(
        "abort_not_logged",
        "ABORTING stands in the log before END_TXN(abort)",
        Rules(next_action=_open_is_ended_unlogged),
        _TASK,
    ),
    Mutant(
        "abort_before_log",
        "ABORTING stands in the log before END_TXN(abort)",
        Rules(aborts_by_log=False),
        _TASK,
    ),
    Mutant(
        "commit_before_log",
        "PREPARED stands in the log before END_TXN(commit)",
        Rules(prepares_first=False),
        Faults(lives=1),
    ),
    Mutant(
        "prepared_is_aborted",
        "a decision is never turned round",
        Rules(next_action=_prepared_is_aborted),
        _CRASH,
    ),
    Mutant(
        "other_action_when_repeated",
        "END_TXN is repeated with the same action",
        Rules(next_action=_prepared_is_ended_with_abort),
        _REPLY,
    ),
    Mutant(
        "runs_do_not_answer",
        "a run answers before it sends",
        Rules(answers=False, is_poisoned=_extra_answers_ignored),
        _TASK,
    ),
    Mutant(
        "extra_answers_ignored",
        "an answer without a summary poisons",
        Rules(is_poisoned=_extra_answers_ignored, obeys_roll_call=False),
        _TASK,
    ),
    Mutant(
        "roll_call_left_open",
        "the driver closes the roll call before it counts",
        Rules(closes_roll_call=False),
        Faults(lives=1, tasks=1, empties=1),
    ),
    Mutant(
        "closing_not_obeyed",
        "a run that answers behind the closing sends nothing",
        Rules(obeys_roll_call=False),
        _TASK,
    ),
    Mutant(
        "unreadable_means_expired",
        "data that is not readable proves nothing",
        Rules(next_action=_absence_of_data_proves),
        Faults(lives=2, crashes=1, replies=1, trims=1, reloads=1),
    ),
    Mutant(
        "prepared_without_mark_is_aborted",
        "a decision without its mark stays one",
        Rules(next_action=_prepared_without_mark_is_aborted),
        Faults(lives=2, crashes=1, replies=1, trims=1),
    ),
    Mutant(
        "swallowed_error_unnoticed",
        "no epoch follows one that failed",
        Rules(attempt_to_run=_follows_what_failed),
        Faults(lives=1, tasks=1, swallows=1),
    ),
    Mutant(
        "failed_task_forgiven",
        "a task that failed poisons",
        Rules(is_poisoned=_errors_forgiven),
        _REPLY,
    ),
    Mutant(
        "receipts_not_awaited",
        "a task reports what the broker has acknowledged",
        Rules(waits_for_receipts=False),
        Faults(lives=1),
    ),
    Mutant("send_repeated", "no send is ever repeated", Rules(resends=True), _REPLY),
    Mutant(
        "receipt_outside",
        "the receipt is sent inside the transaction",
        Rules(receipt_inside=False),
        Faults(lives=1, expiries=1),
    ),
    Mutant(
        "wrong_one_first",
        "what can expire is committed first",
        Rules(next_action=_table_first),
        Faults(lives=1, expiries=1, tables=1),
    ),
    Mutant(
        "other_output_forgotten",
        "COMMITTED comes when every output is committed",
        Rules(next_action=_table_forgotten),
        Faults(lives=1, tables=1),
    ),
    Mutant(
        "files_left_behind",
        "ABORTED comes when every output is aborted",
        Rules(next_action=_files_left),
        Faults(lives=1, expiries=1, tables=1),
    ),
    Mutant(
        "aborted_behind_a_commit",
        "nothing is aborted once the first output is committed",
        Rules(next_action=_aborted_behind_a_commit),
        Faults(lives=2, replies=1, tables=1),
    ),
)
"""Every mutant."""
