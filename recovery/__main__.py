"""The console script ``eos-recovery``, and ``python -m eos.recovery``."""

from eos.cli.entry_point import start


def main() -> None:
    """Run the command line. What can't be written to its output is unknown to whoever reads it."""
    start("eos-recovery", "eos.recovery.cli:main", lost=2)


if __name__ == "__main__":
    main()
