"""Code that runs inside a framework's environment: the entry, the runner and its clock."""
