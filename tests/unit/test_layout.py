from __future__ import annotations

import pytest

from launcher.errors import ConfigurationError
from launcher.layout import Link, Placement, arrange, refuse_hidden_file, top_level


def never(path: str) -> bool:
    return False


def trips(path: str) -> bool:
    return "eagle3" in path.lower()


def test_top_level_names() -> None:
    assert top_level(("b/x", "a", "b/y/z")) == ("a", "b")


def test_one_link_for_each_entry() -> None:
    layout = arrange("/ws", "/m", ["config.json", "sub"], None, never, "/tmp/s")
    assert layout.links == (Link("config.json", "/m/config.json"), Link("sub", "/m/sub"))
    assert (layout.model, layout.draft, layout.neutral) == ("/ws", None, None)


def test_a_named_draft_gets_a_link_of_its_name() -> None:
    layout = arrange("/ws", "/m", ["config.json"], Placement("eagle3_draft", "/d", False), never, "/tmp/s")
    assert Link("eagle3_draft", "/d") in layout.links
    assert layout.draft == "/ws/eagle3_draft"


def test_an_absolute_reference_is_used_as_it_is() -> None:
    layout = arrange("/ws", "/m", ["config.json"], Placement("d", "/x/d", True), never, "/tmp/s")
    assert layout.draft == "/x/d"
    assert [link.name for link in layout.links] == ["config.json"]


@pytest.mark.parametrize(
    "placement", [Placement("eagle3_draft", "/d", False), Placement("d", "/x/EAGLE3-lab/d", True)], ids=["name", "path"]
)
def test_a_draft_whose_path_would_change_the_method_gets_a_neutral_name(placement: Placement) -> None:
    layout = arrange("/ws", "/m", [], placement, trips, "/tmp/s")
    assert layout.draft is not None
    assert not trips(layout.draft)
    assert Link(layout.draft.removeprefix("/ws/"), placement.source) in layout.links


def test_a_workspace_whose_path_would_change_the_method_is_handed_over_by_another_name() -> None:
    layout = arrange("/eagle3-lab/ws", "/m", ["a"], Placement("draft", "/d", False), trips, "/tmp/s")
    assert layout.neutral is not None
    assert layout.model == layout.neutral.name
    assert layout.neutral.to == "/eagle3-lab/ws"
    assert layout.draft == f"{layout.model}/draft"
    assert not trips(layout.model)


def test_the_neutral_link_avoids_a_scratch_folder_that_trips_too() -> None:
    layout = arrange("/eagle3/ws", "/m", [], None, trips, "/eagle3/tmp")
    assert layout.model.startswith("/tmp/specdec-")


def test_relocation_moves_model_and_draft() -> None:
    layout = arrange("/ws", "/m", ["a"], Placement("d", "/d", False), never, "/tmp/s").relocated("/ws.2")
    assert (layout.workspace, layout.model, layout.draft) == ("/ws.2", "/ws.2", "/ws.2/d")


def test_relocation_keeps_two_neutral_links_apart() -> None:
    first = arrange("/eagle3/ws", "/m", [], None, trips, "/tmp/s")
    second = first.relocated("/eagle3/ws.2")
    assert first.model != second.model
    assert second.neutral == Link(second.model, "/eagle3/ws.2")


def test_a_draft_may_not_hide_a_file_of_the_target() -> None:
    with pytest.raises(ConfigurationError, match=r"config\.json"):
        refuse_hidden_file("config.json", ["config.json"], "--speculative-config")


def test_relocation_moves_a_draft_behind_a_neutral_link() -> None:
    first = arrange("/eagle3/ws", "/m", [], Placement("dr", "/d", False), trips, "/tmp/s")
    second = first.relocated("/eagle3/ws.2")
    assert second.draft == f"{second.model}/dr"
    assert second.draft != first.draft
