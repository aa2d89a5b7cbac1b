"""Results for people: tables, figures and files, written atomically."""
