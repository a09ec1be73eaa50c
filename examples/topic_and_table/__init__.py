"""Flights into a topic and a table, all or nothing, with the driver killed between the two."""
