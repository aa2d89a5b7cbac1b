"""A design as launch commands and files of an engine, and a command line as a design."""
