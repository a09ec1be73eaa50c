"""Exactly-once appends to a Delta table: staged on executors, committed once by the driver.

Executors import ``files`` and ``staging``; the driver and recovery also the target table. Nothing
is re-exported here: executors need not have ``deltalake``.
"""
