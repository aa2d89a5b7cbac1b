"""Fitting an engine's parameters to measured deployments."""
