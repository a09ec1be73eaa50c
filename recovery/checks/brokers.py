"""Checks of the cluster: transactions, coordinators, authentication, clock."""

from __future__ import annotations

from eos.admin import AdminClient, CoordinatorState
from eos.cli.reports import age_s, counted, duration
from eos.errors import ConfigurationError, EosError
from eos.protocol import LogRecord
from eos.pulsar.part import pulsar_part
from eos.recovery._target import Target
from eos.recovery.checks.result import Check, failed, of_error, ok, unknown, warning

MAX_SKEW_S = 5.0  # for readable times in reports; safety does not depend on clocks
OLD_TRANSACTION_S = 3600.0  # it holds back the coordinator's low-water mark


def check_cluster(
    target: Target, admin: AdminClient | None, newest: list[LogRecord]
) -> list[Check]:
    """Check broker and coordinators through the client, the rest through the admin API."""
    checks = _check_client(target, newest)
    if admin is None:
        hint = "Pass --admin-url to check coordinators, authentication, clock and policies."
        return [*checks, unknown("admin API", "not asked", hint)]
    try:
        checks.append(ok("admin API", f"{admin.url} answers, Pulsar {admin.version()}"))
    except EosError as error:
        return [*checks, of_error("admin API", error)]
    checks_of = (_check_coordinators, _check_authentication, _check_inactive_topics, _check_skew)
    # One by one: a role may not be allowed to ask for everything.
    for check in checks_of:
        try:
            checks += check(admin)
        except EosError as error:
            checks.append(of_error(check.__name__.removeprefix("_check_"), error))
    return checks


def _check_client(target: Target, newest: list[LogRecord]) -> list[Check]:
    recorded = pulsar_part(newest[0]).service_url if newest else None
    try:
        client = target.client(recorded)
    except ConfigurationError as error:
        return [unknown("broker", error.message, error.hint)]
    with client:
        url = target.service_url_of(recorded)
        try:
            count = client.coordinators.count()
        except EosError as error:
            return [of_error("broker", error)]
        checks = [
            ok("broker", f"{url} answers"),
            ok("transactions", f"on, {counted(count, 'coordinator')}"),
        ]
        # Until a client connects, a coordinator does not load, and reports nothing (measured).
        for tc_id in range(count):
            try:
                client.coordinators.connect(tc_id)
            except EosError as error:
                checks.append(of_error(f"coordinator {tc_id}", error))
    return checks


def _check_coordinators(admin: AdminClient) -> list[Check]:
    open_ = admin.open_transactions()
    checks = []
    for coordinator in admin.coordinators():
        mine = [one for one in open_ if one.txn.most == coordinator.tc_id]
        oldest = max((age_s(one.opened_at) or 0.0 for one in mine), default=0.0)
        checks.append(_of_coordinator(coordinator, oldest))
    return checks


def _of_coordinator(coordinator: CoordinatorState, oldest_s: float) -> Check:
    name = f"coordinator {coordinator.tc_id}"
    found = (
        f"{coordinator.state}, low-water mark {coordinator.low_water_mark}, "
        f"{coordinator.open_transactions} open transactions"
    )
    if coordinator.state != "Ready":
        return failed(
            name, found, "Check the broker's log. A coordinator loads when a client connects."
        )
    if oldest_s > OLD_TRANSACTION_S:
        return warning(
            name,
            f"{found}, the oldest {duration(oldest_s)} old",
            "It holds back the coordinator's low-water mark. `orphans` shows it.",
        )
    return ok(name, found)


def _check_authentication(admin: AdminClient) -> list[Check]:
    name = "authentication"
    enabled = admin.broker_settings().get("authenticationEnabled")
    if enabled is None:
        return [unknown(name, "the broker does not report authenticationEnabled")]
    if enabled == "true":
        return [ok(name, "the broker authenticates its clients")]
    return [
        warning(
            name,
            "the broker does not authenticate its clients: anyone who can reach it can end any "
            "transaction by its id",
            "Set authenticationEnabled=true and give drivers, executors and this tool one role.",
        )
    ]


def _check_inactive_topics(admin: AdminClient) -> list[Check]:
    name = "inactive topics"
    settings = admin.broker_settings()
    enabled = settings.get("brokerDeleteInactiveTopicsEnabled")
    if enabled is None:
        return [unknown(name, "the broker does not report brokerDeleteInactiveTopicsEnabled")]
    if enabled != "true":
        return [ok(name, "not deleted, with or without subscriptions")]
    after_s = settings.get("brokerDeleteInactiveTopicsFrequencySeconds", "?")
    return [
        warning(
            name,
            f"the broker deletes a topic without subscriptions, with all its messages, {after_s} s "
            "after its last producer has gone",
            "Subscribe before writing, or set brokerDeleteInactiveTopicsEnabled=false (or for one "
            "namespace: set-inactive-topic-policies).",
        )
    ]


def _check_skew(admin: AdminClient) -> list[Check]:
    name = "clock"
    skew = admin.clock_skew_s()
    if skew is None:
        return [unknown(name, "the admin API sends no Date header")]
    if abs(skew) > MAX_SKEW_S:
        side = "ahead of" if skew > 0 else "behind"
        return [
            warning(
                name,
                f"the broker's clock is {duration(abs(skew))} {side} this machine's",
                "Synchronize the clocks (NTP): ages and times to live in reports are wrong by that "
                "much. Safety does not depend on clocks.",
            )
        ]
    return [ok(name, f"the broker's is within {MAX_SKEW_S:.0f} s of this machine's")]
