"""Figures of a study: what each draws, how it looks, and how it becomes a file."""
