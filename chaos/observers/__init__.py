"""Who looks on while a run lasts: readers, control sends, processes, clocks."""
