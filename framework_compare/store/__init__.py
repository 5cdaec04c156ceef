"""The study file: one SQLite database per study, written so that a kill loses nothing."""
