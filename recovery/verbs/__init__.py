"""The verbs of ``eos recovery``, one module each."""
