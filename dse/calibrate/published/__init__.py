"""Published results of serving systems, each translated into a study and priced as any other."""
