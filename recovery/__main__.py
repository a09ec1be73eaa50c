"""``python -m recovery``."""

from recovery.cli import main

main()
