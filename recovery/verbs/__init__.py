"""The verbs of ``eos recovery``, a file each. None imports another: what they share lies beside."""
