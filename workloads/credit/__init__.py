"""What packets wait for whose receiver lets them go."""
