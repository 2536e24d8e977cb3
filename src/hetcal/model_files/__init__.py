"""A fitted model as one file and back: numbers, text and known names in a closed schema, never code."""
