"""What each worker of a run did in which order, recorded; and done again in one process."""
