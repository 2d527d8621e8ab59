"""Switches as they are spoken to: the OpenFlow library, flows as its messages, Open vSwitch's cache."""
