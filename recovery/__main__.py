"""``python -m recovery``."""

from recovery.cli import main

if __name__ == "__main__":
    main()
