"""Images: digits and others, from CSV, IDX, arrays or the folder that MNIST comes in."""
