"""Results of load clients as measured rows, each with its own definitions converted."""
