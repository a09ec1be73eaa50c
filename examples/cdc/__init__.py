"""Change data of a shop, in three outputs, under kills."""
