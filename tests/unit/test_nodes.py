"""Several nodes: what the variables say, what vLLM is given, and what is refused."""

from __future__ import annotations

import pytest

from launcher.arguments.merge import Level, effective, level
from launcher.arguments.spellings import parse_words
from launcher.errors import ConfigurationError
from launcher.nodes import Node, joined, place
from launcher.settings.parse import parse_settings
from launcher.settings.values import Given
from launcher.vllm import tables

TABLE = tables.pinned()
LWS = {"LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "1", "LWS_LEADER_ADDRESS": "llm-0.llm"}


def placed(**environ: str) -> Node | None:
    return place(parse_settings(environ, lambda path: "").nodes)


def node(total: int, rank: int, leader: str | None = "10.0.0.1") -> Node:
    address = Given(leader, "NIM_LEADER_IP_ADDRESS") if leader else None
    return Node(Given(total, "NIM_NUM_COMPUTE_NODES"), Given(rank, "NIM_NODE_RANK"), address)


def said(*words: str, rank: int = 1, origin: str = "command line") -> Level:
    return level(rank, origin, parse_words(words, TABLE, origin, lambda path: {}))


def flags(here: Node, *words: str, gpus: int = 0) -> dict[str, tuple[str, ...]]:
    return effective(joined(here, [said(*words)], gpus, TABLE))


def refusal(here: Node, *words: str, gpus: int = 0) -> str:
    with pytest.raises(ConfigurationError) as caught:
        joined(here, [said(*words)], gpus, TABLE)
    return str(caught.value)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        (LWS, (2, 1, "llm-0.llm")),
        ({**LWS, "LWS_GROUP_SIZE": "1", "LWS_WORKER_INDEX": "0"}, None),
        ({"NIM_NUM_COMPUTE_NODES": "1"}, None),
        ({"NIM_NUM_COMPUTE_NODES": "1", "NIM_NODE_RANK": "0", "NIM_LEADER_ROLE": "1"}, None),
        ({"NIM_NUM_COMPUTE_NODES": "4", "NIM_NODE_RANK": "3", "NIM_LEADER_IP_ADDRESS": "10.0.0.1"}, (4, 3, "10.0.0.1")),
        ({"NIM_NUM_COMPUTE_NODES": "3", "NIM_LEADER_ROLE": "1"}, (3, 0, None)),
        ({"NIM_NUM_COMPUTE_NODES": "2", "NIM_LEADER_ROLE": "0"}, (2, 1, None)),
        ({**LWS, "NIM_NUM_COMPUTE_NODES": "2", "NIM_NODE_RANK": "1", "NIM_LEADER_ROLE": "0"}, (2, 1, "llm-0.llm")),
        ({**LWS, "NIM_LEADER_IP_ADDRESS": "10.0.0.1"}, (2, 1, "10.0.0.1")),
    ],
)
def test_the_place_of_a_node(environ: dict[str, str], expected: tuple[int, int, str | None] | None) -> None:
    found = placed(**environ)
    assert (found and (found.total.value, found.rank.value, found.leader and found.leader.value)) == expected


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({"NIM_NODE_RANK": "1"}, "NIM_NODE_RANK is set, but not how many nodes there are"),
        ({"NIM_LEADER_ROLE": "0"}, "NIM_LEADER_ROLE is set, but not how many nodes there are"),
        ({"LWS_LEADER_ADDRESS": "a"}, "LWS_LEADER_ADDRESS is set, but not how many nodes there are"),
        ({"NIM_NUM_COMPUTE_NODES": "4"}, "NIM_NUM_COMPUTE_NODES is 4, but not which of the nodes this is"),
        (
            {"NIM_NUM_COMPUTE_NODES": "4", "NIM_LEADER_ROLE": "0"},
            "but not which of the nodes this is. Set NIM_NODE_RANK, from 0 (which leads) to 3",
        ),
        (
            {"NIM_NUM_COMPUTE_NODES": "2", "NIM_NODE_RANK": "2"},
            "NIM_NODE_RANK is 2, but NIM_NUM_COMPUTE_NODES is 2: ranks",
        ),
        ({"NIM_NUM_COMPUTE_NODES": "1", "NIM_NODE_RANK": "1"}, "ranks go from 0 to 0"),
        (
            {"NIM_NUM_COMPUTE_NODES": "2", "NIM_NODE_RANK": "1", "NIM_LEADER_ROLE": "1"},
            "NIM_LEADER_ROLE is 1, but NIM_NODE_RANK is 1: node 0 leads",
        ),
        ({"NIM_NUM_COMPUTE_NODES": "1", "NIM_LEADER_ROLE": "0"}, "NIM_LEADER_ROLE is 0, but NIM_NUM_COMPUTE_NODES"),
        ({**LWS, "NIM_LEADER_ROLE": "1"}, "NIM_LEADER_ROLE is 1, but LWS_WORKER_INDEX is 1"),
        ({**LWS, "NIM_NUM_COMPUTE_NODES": "4"}, "NIM_NUM_COMPUTE_NODES is 4, but LWS_GROUP_SIZE is 2"),
        ({**LWS, "NIM_NODE_RANK": "0"}, "NIM_NODE_RANK is 0, but LWS_WORKER_INDEX is 1"),
    ],
)
def test_contradictions_and_halves_are_one_sentence(environ: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        placed(**environ)
    assert str(caught.value).startswith(sentence) or sentence in str(caught.value)
    assert caught.value.others == ()


def test_a_leader_serves_the_api() -> None:
    assert flags(node(2, 0), "-tp", "8", "-pp", "2", "--port", "8001") == {
        "--tensor-parallel-size": ("8",),
        "--pipeline-parallel-size": ("2",),
        "--port": ("8001",),
        "--nnodes": ("2",),
        "--node-rank": ("0",),
        "--master-addr": ("10.0.0.1",),
    }


def test_a_worker_has_no_api() -> None:
    words = ("-tp", "16", "--port", "8001", "--host", "::", "--api-server-count", "2", "--middleware", "a.B")
    assert flags(node(2, 1), *words) == {
        "--tensor-parallel-size": ("16",),
        "--nnodes": ("2",),
        "--node-rank": ("1",),
        "--master-addr": ("10.0.0.1",),
        "--headless": (),
    }


def test_every_argument_has_its_origin() -> None:
    here = placed(**LWS)
    assert here is not None
    merged = joined(here, [said()], 8, TABLE)
    assert {argument.flag: (argument.values, argument.origin) for argument in merged.arguments} == {
        "--nnodes": (("2",), "LWS_GROUP_SIZE"),
        "--node-rank": (("1",), "LWS_WORKER_INDEX"),
        "--master-addr": (("llm-0.llm",), "LWS_LEADER_ADDRESS"),
        "--tensor-parallel-size": (("8",), "derived"),
        "--pipeline-parallel-size": (("2",), "derived"),
        "--headless": ((), "derived"),
    }


@pytest.mark.parametrize("words", [("-tp", "4"), ("-pp", "2"), ("-dp", "2"), ("--prefill-context-parallel-size", "2")])
def test_one_size_of_the_users_ends_the_defaults(words: tuple[str, str]) -> None:
    found = flags(node(2, 0), *words, gpus=8)
    assert len([flag for flag in found if flag.endswith("-size")]) == 1


def test_the_users_own_arguments_win_and_the_role_follows_them() -> None:
    assert "--headless" not in flags(node(2, 1), "--node-rank", "0", gpus=1)
    assert flags(node(2, 1), "--master-addr", "b", gpus=1)["--master-addr"] == ("b",)
    assert flags(node(2, 0, None), "--master-addr", "b", gpus=1)["--master-addr"] == ("b",)
    assert flags(node(2, 1), "--nnodes", "1") == {"--nnodes": ("1",)}
    assert flags(node(2, 1), "--nnodes", "3", "-pp", "3")["--nnodes"] == ("3",)
    assert refusal(node(3, 2), "--nnodes", "2", gpus=1).startswith("this is node 2 of 2: ranks go from 0 to 1")
    assert flags(node(2, 1), "--headless", "--port", "1", "--master-addr", "10.0.0.1", "-n2", "-r1", "-tp", "2") == {
        "--headless": (),
        "--master-addr": ("10.0.0.1",),
        "--nnodes": ("2",),
        "--node-rank": ("1",),
        "--tensor-parallel-size": ("2",),
    }


def test_behind_a_balancer_each_node_keeps_its_api() -> None:
    found = flags(node(2, 1), "-dp", "2", "--data-parallel-external-lb", "--port", "8001")
    assert "--headless" not in found
    assert found["--port"] == ("8001",)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "2 nodes (NIM_NUM_COMPUTE_NODES) cannot share --tensor-parallel-size 1 evenly"),
        (("-tp", "3"), "cannot share --tensor-parallel-size 3 evenly"),
        (
            ("-tp", "3", "-pp", "3", "-dp", "5"),
            "--tensor-parallel-size 3 × --pipeline-parallel-size 3 × --data-parallel-",
        ),
    ],
)
def test_an_uneven_split_is_refused(words: tuple[str, ...], sentence: str) -> None:
    assert sentence in refusal(node(2, 0), *words)


def test_the_leaders_address_must_be_known() -> None:
    assert refusal(node(2, 1, None), "-tp", "2").startswith(
        "NIM_NUM_COMPUTE_NODES is 2, but not at which address the leader is. Set NIM_LEADER_IP_ADDRESS"
    )


def test_ray_places_the_workers_itself() -> None:
    assert flags(node(2, 0, None), "--distributed-executor-backend", "ray", gpus=8) == {
        "--distributed-executor-backend": ("ray",),
        "--tensor-parallel-size": ("8",),
        "--pipeline-parallel-size": ("2",),
    }
    sentence = refusal(node(2, 1), "--distributed-executor-backend", "ray")
    assert "with Ray a worker runs no vllm serve" in sentence
    assert "'ray start --address=10.0.0.1:6379 --block'" in sentence


@pytest.mark.parametrize("version", tables.supported())
def test_every_supported_vllm_has_the_flags(version: str) -> None:
    merged = joined(node(2, 1), [], 4, tables.load(version))
    assert [argument.flag for argument in merged.arguments] == [
        "--tensor-parallel-size",
        "--pipeline-parallel-size",
        "--headless",
        "--nnodes",
        "--node-rank",
        "--master-addr",
    ]
