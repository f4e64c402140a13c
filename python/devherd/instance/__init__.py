"""The state of a running instance: its files in the run directory and their readers."""
