"""Grafana panels as plain data: the few kinds that our dashboards are made of, and how they are laid out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypedDict, Unpack

Json = dict[str, object]

DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS = 24


class Unit(StrEnum):
    """Grafana's names for what a number is."""

    NONE = "short"
    BYTES = "bytes"
    RATIO = "percentunit"
    SECONDS = "s"
    WATTS = "watt"
    CELSIUS = "celsius"
    PER_SECOND = "ops"
    JOULES = "joule"
    HOURS = "h"
    SINCE = "dateTimeFromNow"


@dataclass(frozen=True, slots=True)
class Threshold:
    """From ``value`` on, up to the next, a number has this colour."""

    value: float
    colour: str


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression; ``legend`` may hold ``{{label}}``."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. ``kind`` is Grafana's type; ``width`` of 24 columns; ``link`` leads to another dashboard."""

    title: str
    queries: tuple[Query, ...]
    words: str
    unit: Unit = Unit.NONE
    kind: str = "timeseries"
    width: int = 8
    height: int = 8
    thresholds: tuple[Threshold, ...] = ()
    most: float | None = None
    is_stacked: bool = False
    link: str = ""

    def to_json(self, number: int, x: int, y: int) -> Json:
        """Return the panel as Grafana stores it."""
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.words,
            "datasource": DATASOURCE,
            "gridPos": {"h": self.height, "w": self.width, "x": x, "y": y},
            "targets": [self._target(at, query) for at, query in enumerate(self.queries)],
            "fieldConfig": {"defaults": self._defaults(), "overrides": []},
            "options": self._options(),
            **({"links": [{"title": self.link, "url": f"/d/{self.link}?${{__url_time_range}}"}]} if self.link else {}),
        }

    def _target(self, at: int, query: Query) -> Json:
        is_now = self.kind in {"stat", "table", "bargauge", "gauge"}
        return {
            "refId": chr(ord("A") + at),
            "datasource": DATASOURCE,
            "expr": query.expression,
            "legendFormat": query.legend or "__auto",
            "instant": is_now,
            "range": not is_now,
            **({"format": "table"} if self.kind == "table" else {}),
        }

    def _defaults(self) -> Json:
        steps: list[Json] = [{"color": "green", "value": None}]
        steps += [{"color": each.colour, "value": each.value} for each in self.thresholds]
        found: Json = {"unit": str(self.unit), "min": 0, "thresholds": {"mode": "absolute", "steps": steps}}
        if self.most is not None:
            found["max"] = self.most
        if self.kind == "timeseries":
            found["custom"] = {
                "fillOpacity": 20 if self.is_stacked else 5,
                "stacking": {"mode": "normal" if self.is_stacked else "none"},
                "thresholdsStyle": {"mode": "line" if self.thresholds else "off"},
            }
        return found

    def _options(self) -> Json:
        if self.kind == "timeseries":
            return {
                "legend": {"displayMode": "list", "placement": "bottom"},
                "tooltip": {"mode": "multi", "sort": "desc"},
            }
        if self.kind in {"stat", "bargauge", "gauge"}:
            return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "orientation": "horizontal"}
        return {"showHeader": True}


class Extras(TypedDict, total=False):
    """What the shorthands below pass on to ``Panel``."""

    kind: str
    width: int
    height: int
    thresholds: tuple[Threshold, ...]
    most: float
    is_stacked: bool
    link: str


@dataclass(frozen=True, slots=True)
class Variable:
    """Something to choose at the top of a dashboard, filled from a label of a metric."""

    name: str
    label: str
    metric: str
    is_many: bool = True

    def to_json(self) -> Json:
        """Return the variable as Grafana stores it."""
        return {
            "type": "query",
            "name": self.name,
            "label": self.name.capitalize(),
            "datasource": DATASOURCE,
            "query": {"query": f"label_values({self.metric}, {self.label})", "refId": self.name},
            "refresh": 2,
            "sort": 1,
            "multi": self.is_many,
            "includeAll": self.is_many,
            **({"allValue": ".*"} if self.is_many else {}),
        }


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard: rows of panels under headings. ``name`` is its uid and its file's name."""

    name: str
    title: str
    words: str
    rows: Sequence[tuple[str, Sequence[Panel]]]
    variables: Sequence[Variable] = field(default_factory=tuple)

    def to_json(self) -> Json:
        """Return the dashboard as Grafana imports it."""
        source: Json = {"type": "datasource", "name": "datasource", "label": "Prometheus", "query": "prometheus"}
        return {
            "uid": self.name,
            "title": self.title,
            "description": self.words,
            "tags": ["tangram"],
            "schemaVersion": 39,
            "editable": True,
            "refresh": "30s",
            "time": {"from": "now-3h", "to": "now"},
            "links": [
                {"type": "dashboards", "tags": ["tangram"], "title": "Tangram", "asDropdown": True, "keepTime": True}
            ],
            "templating": {"list": [source, *(each.to_json() for each in self.variables)]},
            "panels": self._panels(),
        }

    def _panels(self) -> list[Json]:
        found: list[Json] = []
        y = 0
        for heading, panels in self.rows:
            place: Json = {"h": 1, "w": _COLUMNS, "x": 0, "y": y}
            found.append({"id": len(found) + 1, "type": "row", "title": heading, "gridPos": place, "panels": []})
            y += 1
            x = tallest = 0
            for panel in panels:
                if x + panel.width > _COLUMNS:
                    x, y, tallest = 0, y + tallest, 0
                found.append(panel.to_json(len(found) + 1, x, y))
                x, tallest = x + panel.width, max(tallest, panel.height)
            y += tallest
        return found


def stat(title: str, expression: str, words: str, unit: Unit = Unit.NONE, **more: Unpack[Extras]) -> Panel:
    """Return one number, as it is now."""
    preset: Extras = {"kind": "stat", "width": 4, "height": 4}
    preset.update(more)
    return Panel(title, (Query(expression),), words, unit, **preset)


def lines(
    title: str, expression: str, legend: str, words: str, unit: Unit = Unit.NONE, **more: Unpack[Extras]
) -> Panel:
    """Return lines over time, one a series."""
    return Panel(title, (Query(expression, legend),), words, unit, **more)


def table(title: str, expression: str, words: str, unit: Unit = Unit.NONE, **more: Unpack[Extras]) -> Panel:
    """Return a table of what is so now, one row a series."""
    preset: Extras = {"kind": "table", "width": 12}
    preset.update(more)
    return Panel(title, (Query(expression),), words, unit, **preset)


YELLOW, RED = "yellow", "red"
ANY_IS_BAD = (Threshold(1, RED),)
ANY_IS_ODD = (Threshold(1, YELLOW),)
WHOLE = 1.0
"""The end of the axis for ratios."""
