"""Small patches, each of which breaks one guarantee, and what shows that a test notices."""
