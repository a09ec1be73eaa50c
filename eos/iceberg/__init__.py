"""Exactly-once appends to an Iceberg table: staged on executors, committed once by the driver."""

# Nothing is re-exported: a log is read without pyiceberg.
