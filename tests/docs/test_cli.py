from __future__ import annotations

import re

from typer.main import get_command

from extender.audit import Kind
from extender.cli.commands import app
from extender.history_settings import HistorySettings
from tests.docs.tables import rows

_COMMANDS = {
    name for row in rows("cli.md", "command") for name in re.findall(r"`([a-z-]+(?: [a-z]+)?)", row["command"])
}


def _known() -> set[str]:
    found = set()
    for name, command in get_command(app).commands.items():
        parts = getattr(command, "commands", None)
        found |= {f"{name} {part}" for part in parts} if parts else {name}
    return found


def test_every_command_has_a_row():
    assert _known() == _COMMANDS


def test_every_kind_of_finding_has_a_row():
    assert [row["kind"].strip("`") for row in rows("cli.md", "kind")] == [kind.value for kind in Kind]


def test_every_setting_of_the_history_has_a_row_with_its_default():
    table = {row["setting"].strip("`"): row["default"] for row in rows("cli.md", "setting")}
    defaults = {f"history.{name}": field.default for name, field in HistorySettings.model_fields.items()}
    assert table == {name: "empty" if value == "" else f"{value:g}" for name, value in defaults.items()}
