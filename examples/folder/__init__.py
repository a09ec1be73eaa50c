"""A sink of one's own: each epoch becomes a folder of files, whole or not at all.

See docs/writing-a-sink.md.
"""
