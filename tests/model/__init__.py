"""State-space search of the protocol: production's decisions, a broker model as measured."""
