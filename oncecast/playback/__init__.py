"""Recordings of simulated and live runs, and the page that plays them in a browser."""
