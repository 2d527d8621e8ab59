"""Tests: unit (nothing of the machine), fabricd (the daemon alone), live (whole fabrics); parts is what they share."""
