"""Small patches that each break one guarantee, and a check that a test detects each."""
