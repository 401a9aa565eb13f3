"""Draw `docs/report.svg`, the picture in the README, from a run in a database.

usage: make_picture.py DATABASE [RUN]

The run may be left out where the database holds one. The picture in the repository is of a `goodput demo --keep`.
"""

import os
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

import goodput_analytics
from goodput_collector.database import open_database
from goodput_collector.report_view import print_view, report_view

WIDTH = 80
PICTURE = Path(__file__).parent / "report.svg"


def main(database: str, run: str | None = None) -> None:
    connection = open_database(Path(database), read_only=True)
    run = run or goodput_analytics.runs(connection)[0].run
    view = report_view(goodput_analytics.report(connection, run))
    with Path(os.devnull).open("w") as nowhere:
        console = Console(file=nowhere, record=True, width=WIDTH, force_terminal=True, color_system="truecolor")
        print_view(view, console)
    # A fixed id keeps two pictures of one run the same, byte by byte.
    picture = console.export_svg(title=f"goodput report {run}", theme=MONOKAI, unique_id="goodput")
    # Nothing is to be fetched from elsewhere to look at it: the reader's own monospace font will do.
    PICTURE.write_text(re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL))
    print(f"drew {PICTURE}")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(*sys.argv[1:])
