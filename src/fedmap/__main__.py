"""`python -m fedmap` is `fedmap`."""

from fedmap.cli.main import main

main()
