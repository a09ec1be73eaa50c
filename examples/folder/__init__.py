"""Your own sink: each epoch becomes a folder of files, all or nothing.

See docs/writing-a-sink.md.
"""
