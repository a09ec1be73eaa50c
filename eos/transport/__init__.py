"""Sockets, TLS and authentication: transports frames, without knowledge of topics."""
