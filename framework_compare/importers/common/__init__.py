"""Code that importers share; staged with every importer, and free of any framework."""
