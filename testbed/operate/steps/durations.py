"""How long an operator's actions take, in emulated time.

A step of an emulated job takes tens of microseconds where one of a real job takes tens or hundreds of milliseconds, so
these are real durations divided by about 1,000 where that leaves an order of magnitude, and less than that for what
people do with their hands. All are estimates; what counts is their order: a setting, a link that comes up, a process
that starts, a cable that is plugged, a NIC that is changed.
"""

SETTING_NS = 50_000.0
SETTING = "a setting on its way from the command to the ASIC: about 50 ms on real hardware"
LINK_NS = 100_000.0
LINK = "a link that comes up again (FEC, training): 0.1 s to some seconds on real hardware"
ROUTES_NS = 100_000.0
ROUTES = "routes worked out and written: about 100 ms on real hardware"
TABLE_NS = 200_000.0
TABLE = "a whole flow table written anew: about 100 ms on real hardware"
PROCESS_NS = 500_000.0
PROCESS = "a process that starts and connects: about 0.5 s on real hardware"
RETRAIN_NS = 100_000.0
RETRAIN = "PCIe that trains its link anew: up to 100 ms on real hardware (PCIe base specification, link training)"
CABLE_NS = 1_000_000.0
CABLE = "a cable pulled and another plugged: minutes on real hardware"
NIC_NS = 2_000_000.0
NIC = "a server opened for another NIC: an hour on real hardware"
JOB_NS = 1_000_000.0
JOB = "a job that ends, is placed again and loads its checkpoint: minutes on real hardware"
