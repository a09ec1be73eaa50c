"""``python -m catalog``."""

from catalog.cli import main

if __name__ == "__main__":
    main()
