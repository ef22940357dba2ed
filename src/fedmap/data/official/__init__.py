"""The official sets, one module each."""
