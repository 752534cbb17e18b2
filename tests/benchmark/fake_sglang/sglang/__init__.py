"""Stands before SGLang on the path of benchmark tests: a server that starts at once."""
