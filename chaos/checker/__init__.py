"""From one run's history to its anomalies. Pure."""
