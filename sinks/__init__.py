"""Sinks for PySpark: ``PulsarSink``, ``DeltaSink``, ``all_or_nothing`` for both."""
