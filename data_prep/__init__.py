"""From a Wikipedia dump, or any text, to packed BERT shards."""
