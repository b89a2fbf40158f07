"""The experiments: traces of simulated runs become tables and figures."""
