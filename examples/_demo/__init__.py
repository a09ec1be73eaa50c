"""Shared by the two demos: processes, plain readers, terminal output, report, page and picture."""
