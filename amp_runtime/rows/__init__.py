"""What crosses an edge, and what a node keeps of it until the answer comes."""
