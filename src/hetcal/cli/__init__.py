"""The `hetcal` command: options, files in and out, and results in words for a terminal."""
