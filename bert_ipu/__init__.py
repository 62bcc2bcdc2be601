"""Trains BERT on packed sequences: exact loss, no padding in the heads, any device behind one protocol."""
