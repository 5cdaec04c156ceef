"""The report: one HTML file that holds everything and asks for nothing."""
