"""The verbs of ``eos catalog``, one file each."""
