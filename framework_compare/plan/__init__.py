"""Plan what a study will run: check names, settings and data sets, make cells."""
