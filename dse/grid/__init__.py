"""What-if grids: any axes crossed with the design space, on any number of devices."""
