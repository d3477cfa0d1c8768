"""A speculative head in a checkpoint: whether this vLLM runs it, its tensors are there and the token count suits."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checkpoint import Checkpoint, Head
from launcher.speculation.case import Case
from launcher.speculation.families import ANOTHER_METHOD, Family, depth_field, look_alike, mtp_family
from launcher.speculation.kinds import draft_architecture
from launcher.speculation.rows import Row, counted, failed, known, passed
from launcher.speculation.values import Check

HEAD_NAMES = {"mtp": "MTP", "dspark": "DSpark", "dflash": "DFlash"}
# Families of which vLLM builds no more layers than there are tokens.
_AS_ASKED = frozenset({"inkling_mtp"})


def head(case: Case) -> Iterator[Row]:
    """The rows about a head that the method needs; none for a method that needs no head."""
    if case.method == "mtp":
        yield from _mtp(case)
    elif case.method == "dspark" and case.draft is None:
        yield _bundled(case)


def _mtp(case: Case) -> Iterator[Row]:
    holder = case.draft or case.target
    family = mtp_family(holder.config, case.table)
    if family is None and not case.table.exact:
        family = mtp_family(holder.config)
    yield _mtp_family(case, holder, family)
    if family is None:
        return
    if not case.loads_nothing and not (family.standalone and case.draft is not None):
        yield _mtp_tensors(case, holder, family)
    yield _mtp_tokens(case, holder, family)


def _mtp_family(case: Case, holder: Checkpoint, family: Family | None) -> Check:
    name = holder.config.architecture or holder.config.model_type or "nothing"
    if family is None:
        elsewhere, alike = mtp_family(holder.config), look_alike(holder.config)
        if alike is not None:
            return failed("mtp-family", f"{holder.place} has no MTP head: {alike.why}", alike.todo)
        why = (
            f"the type {elsewhere.name} is unknown to vLLM {case.table.version}"
            if elsewhere is not None
            else f"{name} is no family with an MTP head that vLLM {case.table.version} runs"
        )
        return failed("mtp-family", f"{holder.place} has no MTP head: {why}", ANOTHER_METHOD)
    if family.standalone and case.draft is None:
        return failed(
            "mtp-family",
            f"{holder.place} is itself a published MTP head ({name}), not a model to serve",
            "Serve the model it was made for and give this one as its draft",
        )
    if family.tokens == 0:
        says = (
            "says that it has 0 MTP layers"
            if family.stated
            else f"does not state {depth_field(holder.config)}, without which vLLM builds no MTP head"
        )
        return failed("mtp-family", f"the config.json of {holder.place} {says} ({family.name})", ANOTHER_METHOD)
    return passed("mtp-family", f"{name} is of the family {family.name}")


def _mtp_tensors(case: Case, holder: Checkpoint, family: Family) -> Row:
    head = holder.weights.head("mtp")
    if head is not None:
        return _mtp_layers(case, holder, family, head)
    if holder.weights.form != "safetensors":
        return f"whether the tensors of the MTP head are in {holder.place}: its weights cannot be listed"
    claim = f"config.json claims {family.tokens}" if family.stated else "config.json claims the family"
    other = next(iter(holder.weights.heads), None)
    instead = f"; it holds a {HEAD_NAMES[other.kind]} head instead" if other is not None else ""
    if holder.weights.unlisted:
        instead += f"; {holder.weights.unlisted} holds such tensors, but the index of the weights does not list it"
    return failed(
        "mtp-tensors",
        f"{holder.place} has 0 tensors of an MTP head, although its {claim} ({family.name}){instead}",
        f"Use a checkpoint that kept the head, or choose another method, such as {_other_method(case, other)}",
    )


def _other_method(case: Case, other: Head | None) -> str:
    """The method of another head that is there, where it can run, else the one that always can."""
    stages = other is not None and other.kind == "dspark" and case.machine.device != "cpu"
    return "dspark" if stages else "ngram"


def _mtp_layers(case: Case, holder: Checkpoint, family: Family, head: Head) -> Check:
    """Whether every layer that vLLM will load is there; names that do not number their layers tell nothing."""
    layers = family.layers
    if layers and family.name in _AS_ASKED:
        layers = min(layers, case.tokens)
    missing = sorted(set(range(layers or 0)).difference(head.layers)) if head.layers else []
    if missing:
        which = ", ".join(str(layer + 1) for layer in missing)
        return failed(
            "mtp-tensors",
            f"{holder.place} holds {(layers or 0) - len(missing)} of the {layers} MTP layers that its config.json "
            f"counts ({family.name}), without number {which}",
            "Use a checkpoint that kept the whole head, or choose another method, such as ngram",
        )
    dtype = f" of {head.dtype}" if head.dtype else ""
    return passed("mtp-tensors", f"{counted(head.tensors, 'tensor')}{dtype}, such as {head.example}")


def _mtp_tokens(case: Case, holder: Checkpoint, family: Family) -> Check | None:
    depth = family.tokens
    if not depth:
        return None
    if case.tokens > depth and case.tokens % depth:
        return failed(
            "mtp-tokens",
            f"num_speculative_tokens is {case.tokens}, no multiple of the {depth} MTP layers of {holder.place}",
            f"Set num_speculative_tokens to {depth} or a multiple of it",
        )
    return passed("mtp-tokens", f"{counted(case.tokens, 'token')} with {counted(depth, 'MTP layer')}")


def _bundled(case: Case) -> Row:
    """A DSpark head inside the target, asked for by the method alone."""
    target = case.target
    name = draft_architecture("dspark", target.config)
    if target.config.model_type not in ("deepseek_v4", "deepseek_v41") or not known(name, case.table):
        return failed(
            "bundled-head",
            f"vLLM {case.table.version} runs a DSpark head inside a checkpoint for DeepSeek-V4 only, and "
            f"{target.place} is {target.config.architecture or target.config.model_type or 'of no known kind'}",
            "Give the draft's folder or source as NIM_DRAFT_MODEL_PATH",
        )
    head = target.weights.head("dspark")
    if head is not None or case.loads_nothing:
        tensors = counted(head.tensors, "tensor") if head else "made-up tensors"
        return passed("bundled-head", f"{tensors} of the DSpark head")
    if target.weights.form != "safetensors":
        return f"whether the tensors of the DSpark head are in {target.place}: its weights cannot be listed"
    return failed(
        "bundled-head",
        f"{target.place} has 0 tensors of a DSpark head",
        "Give a DSpark draft as NIM_DRAFT_MODEL_PATH, or choose another method",
    )
