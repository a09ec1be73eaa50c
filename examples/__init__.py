"""Runnable examples: ``python -m examples.flights``."""
