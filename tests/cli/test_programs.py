"""The program ``eos``: help, version and shell completion."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from eos import __version__
from eos.cli.programs import COMPLETES, PROGRAMS
from eos.commit_log import CommitLog
from tests.protocol.epochs import claim, committed_epoch


def eos(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "eos", *words],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_help_names_each_command():
    ended = eos("--help")
    assert ended.returncode == 0
    assert all(f" {name} " in ended.stdout for name in PROGRAMS)


def test_the_version_is_the_distributions():
    assert eos("--version").stdout == f"eos {__version__}\n"


def test_a_misspelt_command_suggests_the_right_one():
    ended = eos("recovry", "status")
    assert ended.returncode == 2
    assert "Did you mean 'recovery'?" in ended.stderr


def test_a_command_that_is_not_the_first_word_is_refused_in_one_line():
    ended = eos("--", "recovery")
    assert ended.returncode == 2
    assert ended.stderr == "eos: the command must be the first word: eos COMMAND ...\n"


@pytest.mark.parametrize(
    ("words", "found"),
    [("eos rec", "recovery"), ("eos recovery res", "resolve"), ("eos broker st", "start")],
)
def test_a_shell_completes_commands_and_their_verbs(words, found):
    variables = {
        COMPLETES: "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    assert eos(**variables).stdout.split() == [found]


NO_MORE_THAN = """
import sys
from eos.cli.programs import main
sys.argv = ["eos", "--help"]
try:
    main()
except SystemExit:
    pass
heavy = {"numpy", "pyarrow", "pydantic", "deltalake", "pyspark", "google", "eos.client", "eos.wire"}
print(*sorted(heavy & sys.modules.keys()), file=sys.stderr)
"""


def test_the_help_imports_only_the_command_line():
    """Imports cost time: the help takes 0.2 s of processor time, and 0.9 s with Arrow."""
    ended = subprocess.run(
        [sys.executable, "-c", NO_MORE_THAN], capture_output=True, text=True, timeout=60
    )
    assert ended.stderr.split() == []


STATUS = """
import sys
sys.argv = ["eos", "recovery", "status", "--commit-log", sys.argv[1]]
from eos.cli.programs import main
code = None
try:
    main()
except SystemExit as ending:
    code = ending.code
heavy = {"pandas", "pyspark", "eos.client", "eos.wire"}
print(code, *sorted(heavy & sys.modules.keys()), file=sys.stderr)
"""


def test_status_imports_no_client_and_no_pandas(tmp_path):
    """They would cost 0.4 s of processor time of the 0.6 that it takes."""
    log = CommitLog.open(tmp_path, "orders")
    for record in committed_epoch(log.append(claim())):
        log.append(record)
    ended = subprocess.run(
        [sys.executable, "-c", STATUS, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert "last committed 0" in ended.stdout
    assert ended.stderr.split() == ["0"]
