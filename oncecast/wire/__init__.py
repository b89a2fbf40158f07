"""Define what clients and nodes exchange: frames, commands, results, errors and batches."""
