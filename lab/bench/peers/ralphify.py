"""Runs `n` iterations of Ralphify, a loop runner that starts any command, in a folder."""

import sys

try:
    from ralphify import main
except ImportError as error:
    sys.exit(f"not installed ({error})")

folder, count = sys.argv[1:]
if int(count) > 0:
    sys.argv = ["ralph", "run", folder, "-n", count]
    main()
