"""Fitting the kernel law to measured kernel times, and saying how well it predicts unseen ones."""
