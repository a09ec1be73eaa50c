"""Faults and their checks: for tests and for the demo; nothing of the product imports it."""
