"""Finds the anomalies in the history of a run. Pure."""
