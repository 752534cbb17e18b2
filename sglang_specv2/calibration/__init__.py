"""Step times of both modes: measured on the server's own graphs, kept in a file, read back."""
