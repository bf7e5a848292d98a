"""The loops of the two kinds of process: they carry between sockets and decisions."""
