"""Sequences: made up, text with a tag a word, time series."""
