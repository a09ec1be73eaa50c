"""What a campaign found, for people and machines."""
