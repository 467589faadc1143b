"""`python -m sqlmem` is the command `sqlmem`."""

from __future__ import annotations

import sys

from sqlmem.cli import main

if __name__ == "__main__":
    sys.exit(main())
