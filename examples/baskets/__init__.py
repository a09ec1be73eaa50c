"""``make demo-e2e``: a grocer's baskets, from a topic to a topic and a table, under kills."""
