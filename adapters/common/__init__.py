"""Code that adapters share, in files named as theirs; staged with every adapter, and free of any framework."""
