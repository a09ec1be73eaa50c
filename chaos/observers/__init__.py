"""The observers of a run: readers, control messages, resources, timing."""
