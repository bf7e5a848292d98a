"""Processes: what each is told, how it starts, is watched, and ends."""
