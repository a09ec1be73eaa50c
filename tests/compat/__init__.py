"""Which releases of Pulsar eos works with: ``make compat``."""
