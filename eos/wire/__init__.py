"""Pulsar's binary protocol without I/O: bytes to commands and back, rows to batches."""
