"""All writes to the file: rows, and the indexes that follow them."""
