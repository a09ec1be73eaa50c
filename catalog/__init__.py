"""Pulsar's topics as tables of Spark: found, described, made, dropped, and read and written by SQL.

A namespace is a database, a topic a table.
"""

from catalog._describe import TopicDescription
from catalog._pulsar_catalog import PulsarCatalog

__all__ = ["PulsarCatalog", "TopicDescription"]
