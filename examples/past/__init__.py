"""One SQL query over the past of a topic, archived in a Delta table, and what is still in it."""
