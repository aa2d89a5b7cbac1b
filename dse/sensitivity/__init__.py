"""What every number of a study is worth: at the fixed design, planned anew, searched anew."""
