"""A study from its first plan to its last run: opening, resuming, running, progress."""
