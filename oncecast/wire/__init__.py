"""The frames, commands, results, errors and batches that clients and nodes exchange."""
