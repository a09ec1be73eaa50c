"""The console script ``eos-chaos``, and ``python -m eos.chaos``."""

from __future__ import annotations

import sys

from eos.cli.entry_point import start


def main() -> None:
    """Run the command line; a package that is missing is named with how to get it."""
    try:
        start("eos-chaos", "eos.chaos.cli:main", lost=2)
    except ModuleNotFoundError as error:
        print(
            f"eos-chaos: {error.name} is not installed. Try: pip install 'eos-pulsar[spark,chaos]'",
            file=sys.stderr,
        )
        sys.exit(2)


if __name__ == "__main__":
    main()
