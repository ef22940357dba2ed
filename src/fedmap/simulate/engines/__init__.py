"""What runs the tasks of a round: this process, or local processes."""
