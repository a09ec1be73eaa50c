"""The checks of ``eos recovery doctor``."""
