"""What an operator does at a fabric that is up: actions with their cost, recorded, and taken back."""
