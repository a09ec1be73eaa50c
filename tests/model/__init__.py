"""The protocol, searched state by state: production decisions, a broker as it was measured."""
