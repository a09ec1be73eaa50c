"""Logs as earlier releases wrote them: they must stay readable."""
