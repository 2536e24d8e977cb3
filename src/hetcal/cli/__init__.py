"""The `hetcal` command: arguments to one call, files in and out, and words for a terminal."""
