"""What follows from an experiment before anything is started: fabricd's parameters, thresholds, algorithms, steps."""
