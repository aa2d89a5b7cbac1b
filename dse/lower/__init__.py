"""From what people write to the arrays that the cost functions take."""
