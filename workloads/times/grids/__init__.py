"""Parts of the vector that go their own ways at the same time."""
