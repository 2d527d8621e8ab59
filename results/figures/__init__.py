"""The few figures that tell a run: summed up, judged, and written so that they can be read."""
