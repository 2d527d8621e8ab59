"""fabricd alone, between TAP devices and an Open vSwitch: root."""
