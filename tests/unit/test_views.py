"""Tables of a live fabric: SONiC's columns, zero rows, rates, what was cleared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hardware.tables import entries
from testbed.base.errors import InputError
from testbed.cli import cli
from testbed.fabric import lab as lab_module
from testbed.live.look.look import Look
from testbed.live.look.since import since
from testbed.live.look.table import Table
from testbed.live.views import VIEWS
from testbed.live.views.interfaces import bytes_per_second
from testbed.live.views.nics import counted
from testbed.machine.ownership import Record
from testbed.words.kinds import Since
from topologies import build

# The header lines of portstat, intfutil, pfcstat and queuestat (sonic-utilities).
PORTSTAT = [
    *("IFACE", "STATE", "RX_OK", "RX_BPS", "RX_UTIL", "RX_ERR", "RX_DRP", "RX_OVR"),
    *("TX_OK", "TX_BPS", "TX_UTIL", "TX_ERR", "TX_DRP", "TX_OVR"),
]
PFC = [f"PFC{c}" for c in range(8)]
QUEUESTAT = ["Port", "TxQ", "Counter/pkts", "Counter/bytes", "Drop/pkts", "Drop/bytes"]


def port(node: str, peer: str, frames: int = 0, **priorities: int) -> dict[str, Any]:
    return {
        "node": node, "port": 1, "peer": peer, "rx_frames": frames, "rx_bytes": 1000 * frames, "tx_frames": 0,
        "tx_bytes": 0, "queue_max_bytes": 700, "drops": {"icrc": 2, "tail": 3, "lossy": 5} if frames else {},
        "ecn_marked": 0, "priorities": priorities,
    }  # fmt: skip


def counters(frames: int, time_ns: int, up: bool = True) -> dict[str, Any]:
    counted = {"tx_prio3_packets": frames, "rx_prio3_pause": 2 * frames, "queue_max_prio3_bytes": 700}
    return {
        "time_ns": time_ns,
        "ports": [port("sw0", "h0:1", frames, **counted), port("h0", "sw0:1", frames, rx_prio0_packets=frames)],
        "switches": [{"switch": "sw0"}],
        "nics": [{"nic": "h0", "rank": 0, "np_ecn_marked_roce_packets": frames, "np_cnp_sent": 1, "rp_cnp_handled": 0,
                  "rp_cnp_ignored": 0, "retransmitted": 0}],
        "qps": [],
        "drops": [{"node": "sw0", "port": 1, "reason": "tail", "count": 3, "headers": "h"}],
        "links": [{"node": "sw0", "port": 1, "up": up, "rate_bps": 10**11, "mtu": 0},
                  {"node": "h0", "port": 1, "up": True, "rate_bps": 10**11, "mtu": 0}],
    }  # fmt: skip


class Kept:
    """A fabric of which some counters were kept, and which has said something."""

    def __init__(
        self, kept: Sequence[tuple[float, dict[str, Any]]] = (), events: Sequence[dict[str, Any]] = ()
    ) -> None:
        self.events = events
        self.fabric = build("star", {"hosts": 2})
        self.experiment = {"fabric": {"nic": {"mtu": 4096}}}
        self.kept = kept

    def history(self) -> Sequence[tuple[float, dict[str, Any]]]:
        return self.kept

    def counters(self) -> dict[str, Any]:
        return counters(0, 0)

    def request(self, op: str, **arguments: Any) -> dict[str, Any]:
        return {"faults": [], "events": [*self.events]}

    def flows(self) -> list[dict[str, Any]]:
        return []


def seen(words: str, now: dict[str, Any], before: dict[str, Any] | None = None) -> list[Table]:
    return VIEWS[words].show(Look(Kept(), now, before))


def test_interface_counters_have_rates_and_utilisation() -> None:
    (table,) = seen("interfaces counters", counters(1100, 2000_000), counters(100, 1000_000))
    (row,) = table.rows
    assert list(row) == PORTSTAT
    assert (row["RX_OK"], row["RX_ERR"], row["RX_DRP"], row["TX_DRP"]) == (1100, 2, 3, 5)
    assert row["RX_BPS"] == "1.00 GB/s"  # 1000 frames of 1000 bytes in 1 ms
    assert row["RX_UTIL"] == "8.16%"  # with 20 bytes of preamble and gap each, of 100 Gb/s
    (row,) = seen("interfaces counters", counters(5, 10, up=False))[0].rows
    assert (row["STATE"], row["RX_BPS"], row["RX_UTIL"]) == ("D", "N/A", "N/A")


def test_interface_status_has_state_speed_mtu_and_peer() -> None:
    switch, nic = seen("interfaces status", counters(0, 0, up=False))[0].rows
    assert switch == {
        "Interface": "sw0:1",
        "Speed": "100G",
        "MTU": 9100,
        "Oper": "down",
        "Admin": "up",
        "Peer": "h0:1",
    }
    assert (nic["Interface"], nic["MTU"], nic["Oper"]) == ("h0:1", 4096, "up")


def test_pfc_has_tables_of_its_own_for_rx_and_tx_and_shows_zero_rows() -> None:
    rx, tx, *_ = seen("pfc", counters(4, 0))
    assert [list(rx.rows[0]), list(tx.rows[0])] == [["Port Rx", *PFC], ["Port Tx", *PFC]]
    assert [r["PFC3"] for r in rx.rows] == [8, 0]
    assert [set(list(r.values())[1:]) for r in tx.rows] == [{0}, {0}]


def test_every_queue_has_a_row_and_watermarks_a_table() -> None:
    queues, watermark, shared, headroom = seen("queues", counters(4, 0))
    assert list(queues.rows[0]) == QUEUESTAT
    assert [r["TxQ"] for r in queues.rows] == [f"UC{c}" for c in range(8)]
    assert [r["Counter/pkts"] for r in queues.rows] == [0, 0, 0, 4, 0, 0, 0, 0]
    assert watermark.rows[0]["UC3"] == 700
    assert list(shared.rows[0]) == list(headroom.rows[0]) == ["Port", *(f"PG{c}" for c in range(8))]


def test_what_was_cleared_does_not_count_and_watermarks_stay() -> None:
    look = Look(Kept(), counters(9, 0), then=counters(4, 0))
    assert VIEWS["interfaces counters"].show(look)[0].rows[0]["RX_OK"] == 5
    assert VIEWS["pfc"].show(look)[0].rows[0]["PFC3"] == 10
    assert VIEWS["queues"].show(look)[1].rows[0]["UC3"] == 700
    assert VIEWS["drops"].show(look)[0].rows == []
    assert VIEWS["ecn"].show(look)[1].rows[0]["np_ecn_marked_roce_packets"] == 5


def test_changed_counts_from_a_moment_that_was_kept() -> None:
    look = Look(Kept([(1000, counters(3, 1000)), (2000, counters(4, 2000))]), counters(9, 3000))
    pfc = VIEWS["pfc"]
    (row,) = pfc.show(look, changed=Since("1us", ago_ns=1000))[0].rows
    assert row == {"Port Rx": "sw0:1", **dict.fromkeys(PFC, 0), "PFC3": 10}  # h0 has counted nothing: left out
    assert pfc.show(look, changed=Since("@1.9us", time_ns=1900))[0].rows[0]["PFC3"] == 12
    assert pfc.show(look, changed=Since("@0ns", time_ns=0))[0].rows[0]["PFC3"] == 18
    for moment, what, hint in (
        (Since("@0.5us", time_ns=500), "no counters were kept at 500ns", "@1us"),
        (Since("@4us", time_ns=4000), "@4us is in the future: it is 3us", "@3us"),
    ):
        with pytest.raises(InputError) as wrong:
            pfc.show(look, changed=moment)
        assert what in wrong.value.what and hint in wrong.value.hint
    with pytest.raises(InputError, match="no counters were kept"):
        pfc.show(replace(look, source=Kept()), changed=Since("1us", ago_ns=1000))


def test_rates_are_counts_per_second_of_emulated_time() -> None:
    look = Look(Kept([(1000, counters(4, 1000))]), counters(9, 2000), before=counters(8, 1500))
    rates = VIEWS["pfc"].show(look, rates=True)[0]
    assert rates.rows[0]["PFC3"] == 4_000_000 and "over the last 500ns" in rates.title  # 2 in 500 ns
    rates = VIEWS["pfc"].show(look, rates=True, changed=Since("1us", ago_ns=1000))[0]
    assert rates.rows[0]["PFC3"] == 10_000_000
    queues, watermark, *_ = VIEWS["queues"].show(look, rates=True)
    assert queues.rows[3]["Counter/pkts"] == 2_000_000 and watermark.rows[0]["UC3"] == 700
    with pytest.raises(InputError, match="over what time"):
        VIEWS["pfc"].show(replace(look, before=None), rates=True)


def test_ethtool_has_what_came_in_by_priority() -> None:
    assert counted(Look(Kept(), counters(4, 0)), 0)["rx_prio0_packets"] == 4


def test_a_full_receive_buffer_is_told_from_a_receive_that_was_not_posted() -> None:
    now = counters(4, 0)
    now["nics"][0]["rx_out_of_buffer"] = 5
    now["ports"][1]["drops"] = {"no_receive_buffer": 5, "icrc": 2, "no_qp": 1, "cable": 7}
    now["shown"] = [{"node": "h0", "port": 1, "rx_full": 4, "cut_off": 3}]
    seen_by_nic = counted(Look(Kept(), now), 0)
    names = ("rx_discards_phy", "rx_out_of_buffer", "tx_discards_phy")
    assert [seen_by_nic[name] for name in names] == [4, 1, 4]


class Repeated(Kept):
    """One on which a job is repeated: rank 2 has all that it asked for, and does nothing."""

    def steps(self) -> Sequence[Any]:
        return ()

    def request(self, op: str, **arguments: Any) -> dict[str, Any]:
        lacks = ("waiting", "0 of 1 completions")
        waiting = [lacks, ("lost", ""), ("waiting", "8 of 1 completions"), ("waiting", "a barrier")]
        workers = [
            {"rank": k, "state": state, "time_ns": 1000, "waits_for": text, "lacks": k in (0, 3), "reason": ""}
            for k, (state, text) in enumerate(waiting)
        ]
        return {"workers": workers}


def test_job_now_tells_who_has_gone_and_who_does_not_wait() -> None:
    (table,) = VIEWS["job"].show(Look(Repeated(), counters(0, 0)), now=True)
    assert [row["state"] for row in table.rows] == ["waits", "gone", "at work", "waits"]
    assert [bool(row["waits_for"]) for row in table.rows] == [True, False, False, True]


@pytest.mark.parametrize(
    ("rate", "text"), [(0, "0.00 B/s"), (2500.0, "2500.00 B/s"), (5e7, "50.00 MB/s"), (4.9e10, "49.00 GB/s")]
)
def test_rates_are_written_as_sonic_does(rate: float, text: str) -> None:
    assert bytes_per_second(rate) == text


class FakeLab:
    """A fabric in which more is counted each time that it is asked."""

    id = "3f2a"

    def __init__(self, folder: Path) -> None:
        self.dir, self.asked, self.fabricd = folder, 0, self
        self.fabric = build("star", {"hosts": 2})
        self.record = Record(self.id, folder)

    def request(self, op: str) -> dict[str, Any]:
        if op != "counters":
            return {"faults": [], "events": []}
        self.asked += 1
        return counters(10 * self.asked, 1000 * self.asked)

    def close(self) -> None:
        pass


@pytest.fixture
def show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    lab = FakeLab(tmp_path)
    (tmp_path / "experiment.json").write_text('{"fabric": {"nic": {"mtu": 4096}}}')
    monkeypatch.setattr(lab_module.Lab, "attach", lambda fabric: lab)

    def call(*words: str) -> str:
        done = CliRunner().invoke(cli, ["show", *words])
        assert done.exit_code == 0, done.output
        return done.stdout

    return call


def test_the_tables_on_the_terminal(show: Any) -> None:
    assert show("interfaces", "counters", "-p", "0.01").split()[: len(PORTSTAT)] == PORTSTAT
    shown = show("pfc")
    assert shown.index("Port Rx") < shown.index("Port Tx")
    assert json.loads(show("pfc", "--json")).keys() == {"rx", "tx", "pauses", "watchdog"}
    assert "4096" in show("interfaces", "status")
    assert show("queues").count("UC0") == 2 and "UC0 " not in show("queues", "--nonzero").partition("\n\n")[0]


def test_clear_counts_from_now_until_it_is_deleted(show: Any) -> None:
    assert show("queues", "-c") == ""
    queues = json.loads(show("queues", "--json"))["queues"]
    assert queues[3]["Counter/pkts"] == 10
    assert json.loads(show("queues", "-d", "--json"))["queues"][3]["Counter/pkts"] == 30
    assert "ecn" not in show("pfc", "--nonzero") and "tx: nothing but zeros" in show("pfc", "--nonzero")
    with pytest.raises(SystemExit) as ended:
        cli.main(["show", "pfc", "-c", "-d"])
    assert ended.value.code == 2


def test_a_later_jobs_queue_pair_of_the_same_number_has_counted_nothing_before() -> None:
    then = {"qps": [{"rank": 0, "qp": 16, "tx_packets": 90}], "switches": [{"switch": "sw0", "frames_in": 7}]}
    now = {"qps": [{"rank": 0, "qp": 16, "tx_packets": 5}], "switches": [{"switch": "sw0", "frames_in": 9}]}
    counted = since(now, then)
    assert counted["qps"] == [{"rank": 0, "qp": 16, "tx_packets": 5}]
    assert counted["switches"] == [{"switch": "sw0", "frames_in": 2}]


def test_what_is_no_count_is_shown_as_it_stands() -> None:
    """Levels, settings and watermarks are none: of a buffer that holds less than before, what it holds."""
    then = {
        "switches": [{"switch": "sw0", "frames_in": 7, "buffer_bytes": 900, "buffer_used_bytes": 300}],
        "nics": [{"rank": 0, "tx_discards_phy": 4, "engine_used_bytes": 80}],
        "accelerators": [{"switch": "sw0", "contributions": 5, "slots": 64, "slots_free": 60, "slots_used_max": 9}],
        "ports": [{"node": "sw0", "port": 1, "tx_bytes": 500, "queue_max_bytes": 700, "drops": {"tail": 2}}],
    }
    now = {
        "switches": [{"switch": "sw0", "frames_in": 9, "buffer_bytes": 900, "buffer_used_bytes": 100}],
        "nics": [{"rank": 0, "tx_discards_phy": 5, "engine_used_bytes": 20}],
        "accelerators": [{"switch": "sw0", "contributions": 6, "slots": 64, "slots_free": 61, "slots_used_max": 9}],
        "ports": [{"node": "sw0", "port": 1, "tx_bytes": 800, "queue_max_bytes": 700, "drops": {"tail": 5}}],
    }
    assert {table: rows for table, rows in since(now, then).items() if table in now} == {
        "switches": [{"switch": "sw0", "frames_in": 2, "buffer_bytes": 900, "buffer_used_bytes": 100}],
        "nics": [{"rank": 0, "tx_discards_phy": 1, "engine_used_bytes": 20}],
        "accelerators": [{"switch": "sw0", "contributions": 1, "slots": 64, "slots_free": 61, "slots_used_max": 9}],
        "ports": [{"node": "sw0", "port": 1, "tx_bytes": 300, "queue_max_bytes": 700, "drops": {"tail": 3}}],
    }


@pytest.mark.parametrize(
    ("table", "keys", "file"),
    [
        ("ports", {"node": "sw0", "port": 1}, "link/port.def"),
        ("ports", {"node": "sw0", "port": 1}, "link/class.def"),
        ("nics", {"rank": 0}, "nic/counters.def"),
        ("switches", {"switch": "sw0"}, "switch/counters.def"),
        ("accelerators", {"switch": "sw0"}, "accelerator/counters.def"),
        ("accelerators", {"switch": "sw0"}, "accelerator/pool.def"),
        ("qps", {"rank": 0, "qp": 16}, "transport/counters.def"),
    ],
)
def test_what_only_grows_is_counted_from_a_moment_on(table: str, keys: dict[str, Any], file: str) -> None:
    """Not so what there is, and the most that there was."""
    sorts = {name.replace("N", "3"): sort for _, name, _, sort, _ in entries(file)}

    def counted(value: int) -> dict[str, Any]:
        values = dict.fromkeys(sorts, value)
        return {table: [keys | ({"priorities": values} if "class" in file else values)]}

    (row,) = since(counted(9), counted(7))[table]
    grew = {name: value for name, value in row.get("priorities", row).items() if name in sorts}
    assert set(sorts.values()) <= {"COUNT", "MOST", "LEVEL"} and sorts
    assert grew == {name: 2 if sort == "COUNT" else 9 for name, sort in sorts.items()}


@pytest.mark.parametrize("heard", [(3, 7), (7, 3)])
def test_what_comes_at_one_time_is_logged_by_name(heard: tuple[int, int]) -> None:
    """Who of several is heard first is the machine's; what one of them says keeps its order."""

    def event(kind: str, time_ns: float, **more: Any) -> dict[str, Any]:
        return {"event": kind, "time_ns": time_ns, **more}

    def lost(rank: int, time_ns: float) -> dict[str, Any]:
        return event("worker_lost", time_ns, rank=rank, reason="its process has ended")

    def says(text: str) -> dict[str, Any]:
        return event("note", 550.0, who="controller", level="info", text=text)

    qp = event("qp_error", 500.0, rank=9, qp=16, peer=1, status=12)
    notes = [says(f"leaf{k}: {what}") for what in ("connection lost; it keeps its flows", "connected") for k in heard]
    events = [lost(8, 400.0), qp, *(lost(rank, 500.0) for rank in heard), *notes, lost(1, 600.0)]
    (table,) = VIEWS["logging"].show(Look(Kept(events=events), counters(1, 700), None))
    said = [row["message"] if row["who"] == "controller" else row["who"] for row in table.rows]
    assert said == [
        "rank8", "nic9", "rank3", "rank7", "leaf3: connection lost; it keeps its flows", "leaf3: connected",
        "leaf7: connection lost; it keeps its flows", "leaf7: connected", "rank1",
    ]  # fmt: skip
