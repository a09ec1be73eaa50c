"""Exactly-once, all-or-nothing writes from PySpark to Apache Pulsar."""

__version__ = "0.2.0"
