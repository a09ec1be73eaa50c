"""The console script ``eos-chaos``, and ``python -m chaos``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; a package that is missing is named with how to get it."""
    try:
        from chaos.cli import main as run
    except ModuleNotFoundError as error:
        print(
            f"eos-chaos: {error.name} is not installed. Try: pip install 'eos-pulsar[spark,chaos]'",
            file=sys.stderr,
        )
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
