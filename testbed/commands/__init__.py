"""The verbs of `testbed`, one module each; the logic is in the layer that owns it."""
