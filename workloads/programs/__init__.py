"""Programs of SmartNICs, each beside what hosts do without."""
