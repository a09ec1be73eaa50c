"""What topics are called, in SQL of ours."""

from __future__ import annotations

from eos.catalog.pulsar_catalog import _quoted


def test_no_variable_and_no_quote_of_a_topics_name_is_left_for_sql():
    """Spark replaces ``${...}`` before it parses; ``\\u0024`` in a literal is a dollar again."""
    assert _quoted("a'b\\c${env:PATH}") == "'a\\'b\\\\c\\u0024{env:PATH}'"
