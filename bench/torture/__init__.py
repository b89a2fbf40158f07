"""Torture a live group of three nodes: kills, pauses, network cuts, lost writes."""
