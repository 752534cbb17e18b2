"""Parts of tools/train_tiny_pair.py: a byte-level Llama target and its EAGLE-3 draft."""
