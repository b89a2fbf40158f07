"""Kill nodes and workers while jobs are done, and audit that each job has its effect once."""
