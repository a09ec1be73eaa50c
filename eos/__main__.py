"""``python -m eos``: the program ``eos``."""

from eos.cli.programs import main

main()
