"""What was measured, drawn (matplotlib; nothing else here needs it)."""
