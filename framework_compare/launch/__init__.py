"""One worker process from its start to the record of its run: launched, watched, limited, judged."""
