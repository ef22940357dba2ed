"""Tables and pictures from finished runs."""
