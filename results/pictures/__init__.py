"""Pictures of what was measured (matplotlib; nothing else here needs it)."""
