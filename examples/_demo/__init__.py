"""Shared by the demos: processes, plain readers, terminal output, report, page and picture."""
