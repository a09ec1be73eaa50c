"""``python -m chaos``: the command line, also where the console script is not on the path."""

from chaos.cli import main

if __name__ == "__main__":
    main()
