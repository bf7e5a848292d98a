"""Molecules: QM9 from its files, tables and archive; SMILES."""
