"""The program ``eos``: its commands, and their common options, reports and exit codes."""
