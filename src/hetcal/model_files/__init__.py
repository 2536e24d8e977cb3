"""A fitted model as one file, and back: numbers and a closed schema, nothing that could run."""
