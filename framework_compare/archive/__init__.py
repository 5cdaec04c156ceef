"""Studies published: a folder per submission, what checks it, and a static site of many."""
