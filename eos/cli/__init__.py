"""What ``eos-recovery`` and ``eos-catalog`` have in common: options, reports, exit codes."""

from eos.cli._cluster import Cluster, cluster_of
from eos.cli._exits import Exit, exit_of, worst
from eos.cli._options import ACCESS
from eos.cli._program import VerbExit, run_program
from eos.cli._report import (
    Facts,
    Report,
    age_s,
    ascii_json,
    duration,
    escape,
    facts_table,
    now,
)
from eos.cli._verb import reporting, with_options

__all__ = [
    "ACCESS",
    "Cluster",
    "Exit",
    "Facts",
    "Report",
    "VerbExit",
    "age_s",
    "ascii_json",
    "cluster_of",
    "duration",
    "escape",
    "exit_of",
    "facts_table",
    "now",
    "reporting",
    "run_program",
    "with_options",
    "worst",
]
