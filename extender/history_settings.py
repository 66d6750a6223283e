"""What an operator decides about explanations that last."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class HistorySettings(BaseModel):
    """Settings of the history; each replica keeps its own.

    ``path``       file on a volume of the replica's own; empty keeps them in memory, until the process ends
    ``days``       after which an attempt is dropped
    ``megabytes``  of the file, at most; its write-ahead log may take a quarter more
    ``peers``      address of a headless Service in front of all replicas' people port, asked to merge histories; empty:
                   a replica tells what it answered itself
    ``peers_ca``   file of the authority that the peers' certificates are checked against; empty: the system's
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = ""
    days: float = Field(default=14.0, gt=0, le=366)
    megabytes: int = Field(default=256, ge=1, le=65_536)
    peers: str = Field(default="", pattern=r"^(https?://\S+)?$")
    peers_ca: str = ""
