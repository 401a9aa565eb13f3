"""How the pages are served: Streamlit's own server, with what it would otherwise send or load turned off."""

from __future__ import annotations

import json
import sys
from pathlib import Path

VARIABLE = "_GOODPUT_DASHBOARD"
"""How the command tells the server's process what to show."""
APP = Path(__file__).parent / "app.py"
MESSAGE_MAX_MIB = 50


def environment(where: str, token_file: str | None) -> dict[str, str]:
    """What the server's process is told: a collector's URL or a file, and the file with the token for reading."""
    return {VARIABLE: json.dumps({"where": where, "token_file": token_file})}


def server_command(host: str, port: int, base_path: str = "", *, browse: bool = False) -> list[str]:
    """The command that serves the pages at an address."""
    settings = {
        "server.address": host,
        "server.port": port,
        "server.baseUrlPath": base_path.strip("/"),
        "server.headless": str(not browse).lower(),
        "server.fileWatcherType": "none",
        "server.showEmailPrompt": "false",
        "runner.magicEnabled": "false",
        "server.maxMessageSize": MESSAGE_MAX_MIB,
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "none",
        "client.showErrorLinks": "false",
        "client.showSidebarNavigation": "false",
        # A colour for both at once would make one theme of them, and the browser's wish for dark would be lost.
        "theme.light.primaryColor": "#6e27c7",
        "theme.dark.primaryColor": "#a9a4ff",
        "logger.level": "warning",
    }
    options = [f"--{name}={value}" for name, value in settings.items()]
    return [sys.executable, "-m", "streamlit", "run", str(APP), *options]
