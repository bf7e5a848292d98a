"""What a run prints, logs, and leaves in its folder."""
