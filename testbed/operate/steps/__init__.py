"""What actions are made of: where they act, their steps, how long they take."""
