"""ZeroMQ: one endpoint a process, three lanes, no blocking send."""
