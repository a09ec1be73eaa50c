"""Compares topics, tables and receipts with the log: ``eos recovery verify``."""
