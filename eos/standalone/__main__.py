"""The console script ``eos-broker``, and ``python -m eos.standalone``."""

from eos.cli.entry_point import start


def main() -> None:
    """Run the command line."""
    start("eos-broker", "eos.standalone.cli:app", lost=1)


if __name__ == "__main__":
    main()
