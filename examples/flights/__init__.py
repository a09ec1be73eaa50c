"""The demo: a year of flights written to Pulsar twice, under the same kills."""
