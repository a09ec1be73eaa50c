"""A service without Spark that counts flights in a ``KeyedState``, under kills."""
