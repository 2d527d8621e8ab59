"""A live fabric: brought up, found again, taken down; its Open vSwitch and its view as a Mininet."""
