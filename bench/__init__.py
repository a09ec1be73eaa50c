"""Benchmarks, run by ``python -m bench NAME`` and ``make bench-...``."""
