"""A YAML file and `key=value` overrides to a checked record."""
