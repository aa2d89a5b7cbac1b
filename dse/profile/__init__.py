"""Profiler exports: kernels by class, how far each is from the roofline, gaps between them."""
