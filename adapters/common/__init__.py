"""What adapters repeat, in files called as theirs; staged with every adapter, and without any framework in it."""
