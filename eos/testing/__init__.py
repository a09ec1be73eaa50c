"""A pytest suite for custom sinks: ``sink_contract.SinkContract``. Needs pytest."""
