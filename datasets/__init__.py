"""One file a data set: where the images come from, and in what order."""
