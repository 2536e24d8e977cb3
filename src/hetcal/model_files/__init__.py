"""Saving a fitted model to one file and loading it: numbers, text and known names in a closed schema, never code."""
