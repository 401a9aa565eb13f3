"""`python -m goodput` is the `goodput` command."""

import sys

from goodput.cli import main

if __name__ == "__main__":
    sys.exit(main())
