"""The demo fails if anything is wrong with eos, or if nothing was shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eos.protocol import Reason, ReasonKind
from examples.flights.flights_report import conclude, evidence, lines_of, report_on
from examples.flights.flights_run import Kill
from tests.examples.flights_runs import T0, eos_run, pulsar_client_run, record


def test_exactly_once_under_kills_that_took_effect_passes():
    conclusion = conclude([pulsar_client_run(), eos_run()])
    assert conclusion.exit_code == 0
    assert "exactly once" in conclusion.sentence


def test_it_passes_without_a_run_of_pulsar_client():
    assert conclude([eos_run()]).exit_code == 0


@pytest.mark.parametrize(
    ("drained", "text"),
    [
        ([*range(12), 11], "1 flights have duplicates"),
        (range(11), "1 flights are missing"),
        (range(11), "epochs 3 are incomplete"),
        (range(9), "3 flights are missing"),
        ([*range(12), 99], "1 messages were never written"),
    ],
)
def test_an_extra_or_missing_row_fails(drained, text):
    run = eos_run()
    run.drained = list(drained)
    conclusion = conclude([pulsar_client_run(), run])
    assert conclusion.exit_code == 1
    assert text in conclusion.sentence


def test_an_epoch_that_was_readable_before_it_was_prepared_fails():
    run = eos_run()
    run.seen[3] = (T0 + 14.9, 3)
    assert conclude([run]).anomalies == ("epochs 1 were readable before they were complete",)


def test_a_duplicate_that_only_the_watching_reader_received_fails():
    run = eos_run()
    run.seen.append((T0 + 40, 0))
    assert conclude([run]).exit_code == 1


def test_a_log_with_other_row_counts_than_the_input_fails():
    run = eos_run()
    run.records[2] = replace(run.records[2], records=2)
    assert "committed in epoch 0" in conclude([run]).sentence


def test_an_epoch_committed_twice_fails():
    run = eos_run()
    run.records.append(record(3, "COMMITTED", 40, txn=6, run_id="r2"))
    assert conclude([run]).exit_code == 1


@pytest.mark.parametrize("what", ["executor", "driver"])
@pytest.mark.parametrize("way", ["pulsar_client", "eos"])
def test_a_kill_that_did_not_happen_shows_nothing(way, what):
    runs = [pulsar_client_run(), eos_run()]
    run = runs[way == "eos"]
    run.kills = [kill for kill in run.kills if kill.what != what]
    conclusion = conclude(runs)
    assert conclusion.exit_code == 3
    assert f"no {what} was killed" in conclusion.sentence


def test_an_executor_kill_that_poisoned_nothing_shows_nothing():
    run = eos_run()
    del run.records[3:6]
    assert conclude([run]).exit_code == 3


def test_an_abort_for_another_reason_is_not_the_kill():
    run = eos_run()
    run.records[5] = replace(run.records[5], reason=Reason(ReasonKind.BROKER, "refused"))
    assert conclude([run]).exit_code == 3


def test_the_later_one_of_two_executor_kills_counts():
    run = eos_run()
    run.kills.insert(0, Kill("executor", 0, T0 + 3.5, 3))
    assert conclude([run]).exit_code == 0


def test_a_driver_that_finished_its_own_transaction_shows_nothing():
    run = eos_run()
    run.records[11] = replace(run.records[11], run_id="r1")
    assert conclude([run]).exit_code == 3


def test_a_prepared_epoch_that_was_written_again_shows_nothing():
    run = eos_run()
    run.records[11:11] = [
        record(2, "ABORTED", 23, txn=4, run_id="r2", reason=Reason(ReasonKind.EXPIRED, "")),
        record(2, "OPEN", 24, txn=6, run_id="r2"),
        record(2, "PREPARED", 25, txn=6, run_id="r1"),
    ]
    run.records[14] = replace(run.records[14], participants=run.records[13].participants)
    assert conclude([run]).exit_code == 3


def test_an_anomaly_outweighs_a_kill_without_effect():
    run = eos_run()
    run.drained.pop()
    run.kills.clear()
    assert conclude([run]).exit_code == 1


def test_the_table_counts_the_errors_of_pulsar_client():
    lines = {line.label: line for line in lines_of([pulsar_client_run(), eos_run()])}
    assert lines["rows in"].cells == ("12", "12")
    assert lines["rows out"].cells == ("16", "12")
    assert lines["flights that have duplicates"].cells == ("4", "0")
    assert lines["duplicate rows"].bad == (True, False)
    assert lines["missing flights"].cells == ("0", "0")
    # Epoch 3 was read after it was complete.
    assert lines["epochs partly visible"].cells == ("3 of 4", "0 of 4")
    assert lines["an epoch partly read, at most"].cells == ("5.0 s", "0.0 s")


def test_the_table_shows_missing_and_unknown_rows_too():
    run = pulsar_client_run()
    run.drained = [0, 1, 99]
    lines = {line.label: line for line in lines_of([run, eos_run()])}
    assert lines["missing flights"].cells == ("10", "0")
    assert lines["messages never written"].bad == (True, False)


def test_the_evidence_names_the_transactions_and_the_runs():
    poisoned, resolved = evidence(eos_run())
    assert "epoch 1: the broker had 2 of its rows" in poisoned
    assert "POISONED: attempt 1 of a task" in poisoned
    assert "(run r1)" in resolved
    assert "(run r2) committed the same transaction (0,4), 6 s later" in resolved


def test_the_summary_counts_duplicate_and_missing_rows():
    report = report_on([pulsar_client_run(), eos_run()])
    assert "the topic ended with 4 duplicate rows and 0 missing rows." in report.summary
    assert report.columns == ("foreachPartition + pulsar-client", "eos PulsarSink")
    assert "ended with" not in report_on([eos_run()]).summary
