"""What the `oncecast` command tells a script through its exit status."""

OK = 0
FAILURE = 1
USAGE = 2  # argparse exits with it too
NOT_FOUND = 3
EMPTY = 4  # nothing there, or nothing came in time
NOT_ALLOWED = 5
NO_QUORUM = 6

# What a shell reports for a command that died of SIGINT or SIGPIPE.
INTERRUPTED = 130
BROKEN_PIPE = 141
