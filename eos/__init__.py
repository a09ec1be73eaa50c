"""Exactly-once, all-or-nothing writes from PySpark to Apache Pulsar."""
