"""The controller's decisions, without I/O: an event in, a list of actions out."""
