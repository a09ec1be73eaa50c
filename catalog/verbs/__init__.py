"""The verbs of ``eos catalog``, a file each."""
