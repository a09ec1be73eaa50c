"""The demo end to end: baskets of a grocer's shops, from topic to topic and table, under kills."""
