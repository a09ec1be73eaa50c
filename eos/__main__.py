"""``python -m eos`` runs the program ``eos``."""

from eos.cli.programs import main

if __name__ == "__main__":
    main()
