"""Read-only search: filters as SQL, and candidate lists of (rowid, score)."""
