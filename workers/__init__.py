"""The node kinds, one file each, and the program that hosts nodes in a process."""
