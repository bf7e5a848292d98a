"""Bytes: the records that processes exchange, their frames, and the account of each channel."""
