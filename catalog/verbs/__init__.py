"""The verbs of ``eos catalog``."""
