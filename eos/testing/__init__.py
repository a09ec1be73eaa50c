"""For tests of sinks of one's own: ``sink_contract.SinkContract``, a pytest suite. Needs pytest."""
