"""The console script ``eos-catalog``, and ``python -m eos.catalog``."""

from eos.cli.entry_point import start


def main() -> None:
    """Run the command line. What can't be written to its output is unknown to whoever reads it."""
    start("eos-catalog", "eos.catalog.cli:main", lost=2)


if __name__ == "__main__":
    main()
