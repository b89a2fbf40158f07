"""Turn traces of simulated runs into tables and figures."""
