"""Sockets, TLS and authentication: moves frames, knows nothing of topics or transactions."""
