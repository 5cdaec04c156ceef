"""One file a data set: where the pictures come from, and in what order."""
