"""Faults that programs see by their verbs: NICs' keys, GIDs and counters that are not what they should be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from testbed.faults.host import NicFault


class WrongRkey(NicFault):
    name: ClassVar[str] = "wrong_rkey"
    summary: ClassVar[str] = (
        "keys that a NIC's peers have of its memory name none any more, as after a restart that they did not hear of"
    )
    shows: ClassVar[str] = (
        "writes and READs to it end with `remote access error` (`resp_remote_access_errors` there, "
        "`req_remote_access_errors` at its peers); queue pairs that are made later are well"
    )
    example: ClassVar[dict[str, Any]] = {"on": "nic:0"}
    mended_by: ClassVar[tuple[str, ...]] = ("job restart",)

    def values(self) -> dict[str, Any]:
        return {"stale_rkeys": True}


class LocalProtection(NicFault):
    name: ClassVar[str] = "local_protection"
    summary: ClassVar[str] = "keys that a host names of its own memory name none any more at its NIC"
    shows: ClassVar[str] = (
        "what is posted there ends with `local protection error` and sends no packet; queue pairs that are made later "
        "are well"
    )
    example: ClassVar[dict[str, Any]] = {"on": "nic:0"}
    mended_by: ClassVar[tuple[str, ...]] = ("job restart",)

    def values(self) -> dict[str, Any]:
        return {"stale_lkeys": True}


class FewRetries(NicFault):
    name: ClassVar[str] = "few_retries"
    summary: ClassVar[str] = "a NIC sends again after fewer timeouts than its queue pairs ask for, such as after none"
    shows: ClassVar[str] = (
        "its queue pairs end with `transport retries exceeded` at the first loss that others hardly notice; `retry` in "
        "`show nic` is less than that of others"
    )
    example: ClassVar[dict[str, Any]] = {"on": "nic:0"}
    mended_by: ClassVar[tuple[str, ...]] = ("nic replace",)
    sets: ClassVar[Mapping[str, str]] = {"retry_most": "retry"}

    retry: int = Field(default=0, ge=0, le=1000, description="so many timeouts one after the other, at most")


class WrongGidIndex(NicFault):
    name: ClassVar[str] = "wrong_gid_index"
    summary: ClassVar[str] = (
        "a NIC's GID of RoCE v2 does not stand first in its table, but behind a link-local one of RoCE v1"
    )
    shows: ClassVar[str] = (
        "programs that take GID 0 there, or are told of it, end when they connect (`Failed to modify QP to RTR`); "
        "`ibv_devinfo -v` has two GIDs; with index 1, and by addresses, all is well"
    )
    example: ClassVar[dict[str, Any]] = {"on": "nic:0"}
    mended_by: ClassVar[tuple[str, ...]] = ("nic replace",)

    def values(self) -> dict[str, Any]:
        return {"gids_moved": True}


FAULTS = (WrongRkey, LocalProtection, FewRetries, WrongGidIndex)
