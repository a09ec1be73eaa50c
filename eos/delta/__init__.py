"""Exactly-once appends to a Delta table: staged on executors, committed once by the driver."""

# Nothing is re-exported: executors import ``files`` and ``staging`` and need not have deltalake.
