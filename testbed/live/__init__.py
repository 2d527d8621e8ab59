"""What is done with a fabric that is up: looked at, judged, and given one job at a time."""
