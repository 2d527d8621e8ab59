"""The connection to switches: the OpenFlow library, flows as its messages, Open vSwitch's cache."""
