"""Faults, and what must never come of them: `eos chaos`; nothing of the product imports it."""
