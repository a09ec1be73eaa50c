"""Compatibility of eos with releases of Pulsar: ``make compat``."""
