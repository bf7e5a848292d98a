"""A worker's decisions, without I/O: rows in, rows out."""
