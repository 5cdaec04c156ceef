"""What importers repeat; staged with every importer, and without any framework in it."""
