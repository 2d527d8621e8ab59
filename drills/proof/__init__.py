"""What is proved of a game: its truth was there before, and who has run it."""
