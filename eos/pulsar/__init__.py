"""The Pulsar participant: one transaction for each attempt, and the witness that proves it."""
