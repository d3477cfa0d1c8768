"""What every kind of test relies on: the compiled profiles are those of the profile files."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]


def pytest_configure() -> None:
    output = ROOT / "launcher" / "profiles.json"
    made_from = [*ROOT.glob("profiles/*.yaml"), *ROOT.glob("launcher/profiles/*.py")]
    newest = max(path.stat().st_mtime for path in made_from)
    if not output.is_file() or output.stat().st_mtime < newest:
        from launcher.profiles.compile import write

        write(str(ROOT / "profiles"), str(output))
