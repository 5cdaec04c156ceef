"""Levels 0 to 3 and 5: the network against the float64 reference."""
