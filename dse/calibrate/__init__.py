"""Measured rows: reading them, predicting them, and the errors."""
