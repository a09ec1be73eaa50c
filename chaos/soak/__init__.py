"""The soak end to end: an hour of steady rows, topic to topic and table; nothing grows."""
