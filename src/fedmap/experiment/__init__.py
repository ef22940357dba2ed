"""Lists of runs: what is to be done, how long it takes, carrying it out, and what came out."""
