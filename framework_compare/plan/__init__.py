"""What a study will run: names, settings and data sets checked, cells made."""
