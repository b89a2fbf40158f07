"""Measure and audit a queue shared by many processes while consumers are killed."""
