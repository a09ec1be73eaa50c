"""A disk that is full or read-only when a decision, or its end, must be logged.

Each log is on a separate file system, so only the log is affected. In each state, ``status``,
``verify`` and ``doctor`` report the problem, and one command repairs it.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eos import failpoints
from eos.errors import EosError
from eos.steps import Step
from tests.support.judge import drain
from tests.support.plain_driver import rows_of


def mount(*args: object) -> None:
    subprocess.run(["mount", *map(str, args)], check=True, capture_output=True)


@pytest.fixture
def root(tmp_path) -> Iterator[Path]:
    """The root of the commit logs, on a small file system."""
    root: Path = tmp_path / "log"
    root.mkdir()
    try:
        mount("-t", "tmpfs", "-o", "size=2m", "tmpfs", root)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    yield root
    subprocess.run(["umount", "-l", str(root)], check=True)


def fill(root: Path) -> None:
    with contextlib.suppress(OSError), (root / "other.data").open("wb", buffering=0) as file:
        while file.write(b"\0" * 4096):
            pass


def empty(root: Path) -> None:
    (root / "other.data").unlink()


def read_only(root: Path) -> None:
    mount("-o", "remount,ro", root)


def writable(root: Path) -> None:
    mount("-o", "remount,rw", root)


TROUBLES: dict[str, tuple[Callable[[Path], None], Callable[[Path], None], str]] = {
    "full": (fill, empty, "No space left"),
    "read-only": (read_only, writable, "Read-only file system"),
}
# The step before the append that fails; the log's last record then; the result of resolve.
MOMENTS = {
    "PREPARED": (Step.RECEIPT, "OPEN", "ABORTED"),
    "COMMITTED": (Step.END, "PREPARED", "COMMITTED"),
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("trouble", TROUBLES)
def test_full_or_readonly_disk_is_reported_and_one_command_repairs_it(
    recovery, make_driver, root, name, pulsar_standalone, trouble, moment
):
    begin, end, says = TROUBLES[trouble]
    step, left, after = MOMENTS[moment]
    driver = make_driver()
    driver.run("0")
    where = ("--commit-log", root, "--admin-url", pulsar_standalone.admin_url)
    with failpoints.armed(step, lambda: begin(root)), pytest.raises(EosError) as caught:
        driver.run("1")
    assert says in str(caught.value), caught.value
    driver.close()
    assert driver.states("1")[-1] == left
    for verb in ("status", "verify"):
        ended = recovery(verb, name, *where)
        assert ended.code == 1
        assert left in ended.out
    doctor = recovery("doctor", name, *where, "--json")
    found = [check["found"] for check in doctor.json["checks"] if check["verdict"] != "ok"]
    assert doctor.code == 1
    assert any(says in one for one in found), found
    assert f"unfinished or not written epochs: 1 {left}" in found
    ended = recovery("resolve", name, *where, "--apply", "--yes")
    assert ended.code != 0
    assert says in f"{ended.out} {ended.err}"
    assert driver.states("1")[-1] == left
    end(root)
    assert recovery("resolve", name, *where, "--apply", "--yes").code == 0
    assert driver.states("1")[-1] == after
    make_driver().run("1")
    url = pulsar_standalone.service_url
    values = [one.value for one in drain(url, driver.topic)]
    assert values == [*rows_of("0"), *rows_of("1")]
    for verb in ("status", "verify"):
        assert recovery(verb, name, *where).code == 0
