"""Bringing a sink to a decided state without Spark."""
