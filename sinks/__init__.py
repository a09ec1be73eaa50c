"""Sinks for PySpark: ``PulsarSink``, ``DeltaSink``, ``IcebergSink``, ``all_or_nothing``."""

from eos.sinks._release import check_release

# At import, and so on the driver and on executors, before anything is opened or written.
check_release()
