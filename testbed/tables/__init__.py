"""What was measured, as tables on a terminal."""
