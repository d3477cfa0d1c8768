"""What every profile speculates with: method, draft, tokens and reason, with the head's tensors and without.

``LAUNCHER_GOLDEN=write`` writes the committed table anew; read the difference before committing it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from launcher.commands import profile as choosing
from launcher.machine import Machine
from launcher.profiles import compiled
from launcher.profiles.choose import Question, choose
from launcher.profiles.values import Model, Profile
from launcher.speculation.select import candidates, decide
from launcher.speculation.values import Decision, Request
from launcher.vllm import tables
from tests.golden.shapes import published, target

TABLE = Path(__file__).parent / "profiles.json"
STORE = compiled.load() or compiled.EMPTY
PROFILES = STORE.all()
MODELS = {profile.model.name: profile for profile in PROFILES}
GPU, CPU = Machine("cuda"), Machine("cpu")
PINNED = tables.pinned()


def decided(profile: Profile, machine: Machine, *, head: bool, enabled: bool = True) -> tuple[Decision, bool]:
    """The decision for a model served from the profile's source, and whether its draft was asked for."""
    model = profile.model
    on = target(model, head=head)
    choice = choose(Question(on.place, profile.sources[0], (), on.config, GPU, (profile.id, "test")), (STORE,))
    assert choice.profile.id == profile.id
    toggle = "NIM_SPECDEC_ENABLE" if enabled else None
    ways = choosing.published(choice)
    request = Request((), enabled, toggle, None, "required", {}, False, ways, choice.note)
    wanted = candidates(request, on, PINNED, machine)
    facts = {reference.source: published(model.draft, model) for reference in wanted if model.draft is not None}
    return decide(request, on, facts, PINNED, machine), bool(wanted)


def shown(profile: Profile, machine: Machine, *, head: bool) -> dict[str, Any]:
    decision, asked = decided(profile, machine, head=head)
    chosen = decision.speculation
    assert [check.message for check in decision.checks if check.error] == []
    return {
        "method": chosen.method,
        "tokens": chosen.tokens,
        "draft": chosen.draft.source if chosen.draft else None,
        "asked for the draft": asked,
        "config": dict(chosen.config),
        "reason": chosen.reason,
    }


def test_every_profile() -> None:
    found = {
        profile.description: {
            "with its head": shown(profile, GPU, head=True),
            **({"without": shown(profile, GPU, head=False)} if profile.model.head else {}),
        }
        for profile in PROFILES
        if profile.tp == min(one.tp for one in PROFILES if one.model == profile.model)
    }
    text = json.dumps(found, indent=1) + "\n"
    if os.environ.get("LAUNCHER_GOLDEN") == "write":
        TABLE.write_text(text, encoding="utf-8")
    assert text == TABLE.read_text(encoding="utf-8")


def test_the_number_of_gpus_changes_nothing_of_it() -> None:
    for profile in PROFILES:
        first = MODELS[profile.model.name]
        assert shown(profile, GPU, head=True) == shown(first, GPU, head=True), profile.description


def expected(model: Model, *, head: bool, machine: Machine) -> str:
    """MTP where its tensors are, else the published draft, else n-gram.  DSpark runs on GPUs alone."""
    methods = [model.head.method if model.head and head else "", model.draft.method if model.draft else ""]
    able = [method for method in methods if method and not (method == "dspark" and machine == CPU)]
    hybrid = any(name.startswith(("Qwen3Next", "Qwen3_5")) for name in model.architectures)
    if hybrid and machine == CPU:
        return "ngram"  # there its head needs prefix caching switched off
    return able[0] if able else "ngram"


@pytest.mark.parametrize("machine", [GPU, CPU], ids=["gpu", "cpu"])
@pytest.mark.parametrize("head", [True, False], ids=["whole", "stripped"])
@pytest.mark.parametrize("name", MODELS)
def test_the_right_method_with_and_without_the_tensors(name: str, head: bool, machine: Machine) -> None:
    profile = MODELS[name]
    decision, asked = decided(profile, machine, head=head)
    chosen = decision.speculation
    assert chosen.method == expected(profile.model, head=head, machine=machine), chosen.considered
    # A draft is asked for when nothing in the checkpoint serves, and only then.
    served_by_head = head and profile.model.head is not None and chosen.method == profile.model.head.method
    assert asked == (profile.model.draft is not None and not served_by_head)


def test_enough_shapes() -> None:
    assert len(MODELS) >= 60
    assert sum(1 for profile in MODELS.values() if profile.model.head or profile.model.draft) >= 60


@pytest.mark.parametrize("name", MODELS)
def test_the_toggle_off_asks_for_no_draft(name: str) -> None:
    decision, asked = decided(MODELS[name], GPU, head=False, enabled=False)
    assert (decision.speculation.enabled, asked) == (False, False)


def test_published_settings_are_keys_of_every_supported_vllm() -> None:
    for version in tables.SUPPORTED:
        table = tables.load(version)
        for profile in MODELS.values():
            for way in (profile.model.head, profile.model.draft):
                for key in way.settings if way else ():
                    field = table.field(key)
                    assert field is not None and not field.internal, (version, profile.description, key)
