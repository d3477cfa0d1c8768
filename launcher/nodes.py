"""Several nodes that serve one model together: from what the variables say to vLLM's arguments (pure).

vLLM's own multi-node engine wants the same command on every node but for the rank: node 0 leads and serves the API, the
others run its workers and no API (``--headless``).  Ray is the other way; there only the leader runs ``vllm serve``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from launcher.arguments.merge import Level, effective, merge
from launcher.arguments.values import Argument, Merged, given
from launcher.errors import ConfigurationError
from launcher.settings.values import Given, NodeSettings
from launcher.typing import NamedTuple
from launcher.vllm.tables import EngineTable

COUNT, RANK, ADDRESS, HEADLESS = "--nnodes", "--node-rank", "--master-addr", "--headless"
TENSOR, PIPELINE = "--tensor-parallel-size", "--pipeline-parallel-size"
# What vLLM multiplies to the number of processes, which the nodes share evenly.
SIZES = (TENSOR, PIPELINE, "--prefill-context-parallel-size", "--data-parallel-size")
# With one of these each node has an API server of its own, for a balancer in front of them.
BALANCED = (
    "--data-parallel-external-lb",
    "--data-parallel-hybrid-lb",
    "--data-parallel-multi-port-external-lb",
    "--data-parallel-rank",
    "--data-parallel-start-rank",
)
EXECUTORS = ("--distributed-executor-backend", "--data-parallel-backend")
RAY = "ray"
# What only an API server reads; with the first, a headless vLLM does not start.
API = frozenset({"--api-server-count", "--port", "--host", "--uds", "--middleware"})

_VARIABLES, _DERIVED = Level(3, "several nodes"), Level(6, "derived")


class Node(NamedTuple):
    """This node among those that serve one model."""

    total: Given[int]  # at least 2
    rank: Given[int]  # 0 leads
    leader: Given[str] | None  # its address


def place(said: NodeSettings) -> Node | None:
    """This node's place; None where one node serves alone.

    Raises ConfigurationError where the variables contradict each other, or say only half.
    """
    count, rank, leads = _agreed(said.total, said.group), _agreed(said.rank, said.member), said.leads
    if count is None:
        half = rank or leads or said.leader
        if half is None:
            return None
        raise ConfigurationError(
            f"{half.origin} is set, but not how many nodes there are", "Set NIM_NUM_COMPUTE_NODES, or unset it"
        )
    if rank is None:
        rank = _rank_by_role(count, leads)
    if rank.value >= count.value:
        raise ConfigurationError(
            f"{rank.origin} is {rank.value}, but {count.origin} is {count.value}: ranks go from 0 to {count.value - 1}",
            "Correct one of the two",
        )
    if leads is not None and leads.value != (rank.value == 0):
        raise ConfigurationError(
            f"{leads.origin} is {int(leads.value)}, but {rank.origin} is {rank.value}: node 0 leads, and no other",
            "Correct one of the two, or unset NIM_LEADER_ROLE",
        )
    return Node(count, rank, said.leader) if count.value > 1 else None


def _agreed(own: Given[int] | None, group: Given[int] | None) -> Given[int] | None:
    """The value of NIM's variable and of LeaderWorkerSet's, which must be the same where both are set."""
    if own is not None and group is not None and own.value != group.value:
        raise ConfigurationError(
            f"{own.origin} is {own.value}, but {group.origin} is {group.value}",
            f"Unset {own.origin}: LeaderWorkerSet says it",
        )
    return own or group


def _rank_by_role(count: Given[int], leads: Given[bool] | None) -> Given[int]:
    """The rank of a leader, and of the one worker of two nodes."""
    if leads is not None and (leads.value or count.value == 2):
        return Given(0 if leads.value else 1, leads.origin)
    if count.value == 1:
        return Given(0, count.origin)
    raise ConfigurationError(
        f"{count.origin} is {count.value}, but not which of the nodes this is",
        f"Set NIM_NODE_RANK, from 0 (which leads) to {count.value - 1}",
    )


def joined(node: Node, levels: Sequence[Level], gpus: int, table: EngineTable) -> Merged:
    """All levels together with what this node's place adds: arguments of the variables, and derived ones below.

    ``gpus`` is the number of GPUs of this node, 0 where it is not known; every node is taken to have as many.
    Arguments that the user gave win as ever, and the role follows them.

    Raises ConfigurationError for what vLLM would refuse after its imports.
    """
    said = effective(merge(levels))
    if any(said.get(flag, ("",))[-1] == RAY for flag in EXECUTORS):
        return _under_ray(node, levels, said, gpus, table)
    if said.get(COUNT) == ("1",):
        return merge(levels)
    levels = _with(levels, _VARIABLES._replace(arguments=tuple(_places(node, said, table))))
    said = effective(merge(levels))
    count, rank = _number(said[COUNT]), _number(said[RANK])
    if count is None or rank is None:
        return merge(levels)  # vLLM says what is wrong with a word that is no number
    if rank >= count:
        raise ConfigurationError(
            f"this is node {rank} of {count}: ranks go from 0 to {count - 1}", f"Correct {COUNT} or {RANK}"
        )
    derived = [*_sizes(said, count, gpus, table)]
    works = rank > 0 and not any(flag in said for flag in BALANCED)
    if works:
        derived.append(_argument(HEADLESS, (), _DERIVED.origin, table))
    merged = merge(_with(levels, _DERIVED._replace(arguments=tuple(derived))))
    _refuse_uneven(effective(merged), count, node)
    return _without_api(merged) if works else merged


def _with(levels: Sequence[Level], part: Level) -> list[Level]:
    return sorted([*levels, part], key=lambda level: level.rank)


def _places(node: Node, said: Mapping[str, tuple[str, ...]], table: EngineTable) -> Iterator[Argument]:
    if node.leader is None and ADDRESS not in said:
        raise ConfigurationError(
            f"{node.total.origin} is {node.total.value}, but not at which address the leader is",
            "Set NIM_LEADER_IP_ADDRESS to it, the same on every node",
        )
    yield _argument(COUNT, (str(node.total.value),), node.total.origin, table)
    yield _argument(RANK, (str(node.rank.value),), node.rank.origin, table)
    if node.leader is not None:
        yield _argument(ADDRESS, (node.leader.value,), node.leader.origin, table)


def _sizes(said: Mapping[str, tuple[str, ...]], count: int, gpus: int, table: EngineTable) -> Iterator[Argument]:
    """The usual split where nobody gave one: each layer over the GPUs of a node, the stages over the nodes."""
    if gpus and not any(size in said for size in SIZES):
        yield _argument(TENSOR, (str(gpus),), _DERIVED.origin, table)
        yield _argument(PIPELINE, (str(count),), _DERIVED.origin, table)


def _argument(name: str, values: tuple[str, ...], origin: str, table: EngineTable) -> Argument:
    flag = table.flag(name)
    if flag is None:
        raise ConfigurationError(f"vLLM {table.version} has no {name}, which several nodes need", "Use another vLLM")
    return given(flag, values, origin)


def _under_ray(
    node: Node, levels: Sequence[Level], said: Mapping[str, tuple[str, ...]], gpus: int, table: EngineTable
) -> Merged:
    if node.rank.value > 0:
        address = node.leader.value if node.leader else "LEADER"
        raise ConfigurationError(
            f"this is node {node.rank.value} of {node.total.value}, and with Ray a worker runs no vllm serve",
            f"Give the container the words 'ray start --address={address}:6379 --block' instead",
        )
    return merge(_with(levels, _DERIVED._replace(arguments=tuple(_sizes(said, node.total.value, gpus, table)))))


def _refuse_uneven(said: Mapping[str, tuple[str, ...]], count: int, node: Node) -> None:
    """Every node runs as many processes: vLLM refuses another split, after its imports."""
    processes = 1
    for size in SIZES:
        number = _number(said.get(size, ("1",)))
        if number is None:
            return  # vLLM says what is wrong with it
        processes *= number
    if processes % count:
        given_sizes = " × ".join(f"{size} {said[size][-1]}" for size in SIZES if size in said) or f"{TENSOR} 1"
        raise ConfigurationError(
            f"{count} nodes ({node.total.origin}) cannot share {given_sizes} evenly",
            "Set NIM_TENSOR_PARALLEL_SIZE to the GPUs of a node and NIM_PIPELINE_PARALLEL_SIZE to the nodes",
        )


def _number(values: tuple[str, ...]) -> int | None:
    text = values[-1] if values else ""
    return int(text) if text.isascii() and text.isdecimal() else None


def _without_api(merged: Merged) -> Merged:
    """What every node is given for the API, such as NIM_SERVER_PORT, has no reader on a worker."""
    return merged._replace(arguments=tuple(part for part in merged.arguments if part.flag not in API))
