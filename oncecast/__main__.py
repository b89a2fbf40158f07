"""`python -m oncecast` is the `oncecast` command."""

import sys

from oncecast.cli.main import main

sys.exit(main())
