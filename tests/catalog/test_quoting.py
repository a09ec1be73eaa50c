"""Topics' names in the SQL of the catalog."""

from __future__ import annotations

from eos.catalog.pulsar_catalog import _quoted


def test_variables_and_quotes_of_a_topics_name_are_escaped():
    """Spark replaces ``${...}`` before it parses; ``\\u0024`` in a literal is a dollar again."""
    assert _quoted("a'b\\c${env:PATH}") == "'a\\'b\\\\c\\u0024{env:PATH}'"
