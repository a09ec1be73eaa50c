"""Pulsar's topics as tables of Spark: found, described, made, dropped, and read and written by SQL.

A namespace is a database, a topic a table. ``eos.catalog.cli`` has the same without Spark.
"""

from eos.catalog._describe import TopicDescription

__all__ = ["TopicDescription"]
