"""Topics as tables of Spark: list, describe, create, drop, and read and write them by SQL.

A namespace is a database, a topic a table. ``eos.catalog.cli`` does the same without Spark.
"""

from eos.catalog._cluster_topics import TopicDescription

__all__ = ["TopicDescription"]
