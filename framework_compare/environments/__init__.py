"""The environments the frameworks run in: made, found, explained."""
