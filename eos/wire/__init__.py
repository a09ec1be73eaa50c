"""Pulsar's binary protocol without I/O: commands, batches of messages, Avro."""
