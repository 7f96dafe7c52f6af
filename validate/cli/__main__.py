"""``python -m validate.cli``: the program, where its script is not on the path."""

import sys

from validate.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
