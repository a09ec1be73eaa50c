"""Reports of a campaign, for people and machines."""
