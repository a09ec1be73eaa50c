"""``make demo``: a year of flights is written to Pulsar in two ways, under the same kills."""
