"""Logs as releases of the past have written them: to be read for ever."""
