"""Figures from metrics pages, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from launcher.errors import ConfigurationError, IntegrityError
from launcher.report import acceptance
from launcher.report.acceptance import Acceptance, Counts
from launcher.report.run import Run
from launcher.report.scrape import State, run_between, run_since_start, samples, states

# Two engines of one server (data parallel), three positions, and lines that look alike and do not count.
VLLM = """\
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="org/m"} 30.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="org/m"} 10.0
# TYPE vllm:spec_decode_num_drafts_created gauge
vllm:spec_decode_num_drafts_created{engine="0",model_name="org/m"} 1.7959833597213573e+09
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="org/m"} 90.0
vllm:spec_decode_num_draft_tokens_total{engine="1",model_name="org/m"} 30.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="org/m"} 50.0
vllm:spec_decode_num_accepted_tokens_total{engine="1",model_name="org/m"} 22.0
vllm:spec_decode_num_accepted_tokens_created{engine="1",model_name="org/m"} 1.7959833597213573e+09
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="org/m",position="1"} 20.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="org/m",position="0"} 26.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="org/m",position="2"} 4.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="org/m",position="0"} 10.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="org/m",position="1"} 8.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="org/m",position="2"} 4.0
vllm:generation_tokens_total{engine="0",model_name="org/m"} 100.0
vllm:generation_tokens_total{engine="1",model_name="org/m"} 40.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="org/m"} 3.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="org/m"} 1.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="org/m"} 0.5
vllm:time_to_first_token_seconds_count{engine="0",model_name="org/m"} 4.0
vllm:cache_config_info{block_size="16",engine="0"} 1.0
"""
OFF = """\
vllm:generation_tokens_total{engine="0",model_name="org/m"} 100.0
vllm:num_requests_running{engine="0",model_name="org/m"} 0.0
"""
SGLANG = """\
sglang:spec_accept_length{model_name="org/m",engine_type="unified",tp_rank="0"} 2.4
sglang:spec_accept_rate{model_name="org/m",engine_type="unified",tp_rank="0"} 0.46
sglang:spec_num_draft_tokens{model_name="org/m",engine_type="unified",tp_rank="0"} 4
sglang:spec_verify_calls_total{model_name="org/m"} 100
sglang:generation_tokens_total{model_name="org/m",is_streaming="True"} 200
sglang:generation_tokens_total{model_name="org/m",is_streaming="False"} 50
sglang:num_requests_total{model_name="org/m"} 10
"""
TENSORRT = """\
trtllm_spec_decode_drafted_tokens_total{model_name="org/m",token_position="0"} 40
trtllm_spec_decode_drafted_tokens_total{model_name="org/m",token_position="1"} 40
trtllm_spec_decode_accepted_tokens_total{model_name="org/m",token_position="0"} 30
trtllm_spec_decode_accepted_tokens_total{model_name="org/m",token_position="1"} 10
trtllm_spec_decode_acceptance_length{model_name="org/m"} 1.7
"""


def state(text: str) -> State:
    (found,) = states(samples(text, "page"), "page")
    return found


def since_start(text: str) -> Run:
    return run_since_start(state(text), "page", "page")


def test_the_formulas() -> None:
    figures = acceptance.of(Counts(40, 120, 72, (36, 28, 8)))
    assert figures.rate == 72 / 120
    assert figures.length == 1 + 72 / 40
    assert figures.positions == (36 / 40, 28 / 40, 8 / 40)
    assert figures.conditional[0] == 36 / 40
    assert figures.conditional[1:] == pytest.approx((28 / 36, 8 / 28))


def test_nothing_drafted_is_no_figure() -> None:
    figures = acceptance.of(Counts(0, 0, 0, (0, 0)))
    assert (figures.rate, figures.length, figures.positions) == (None, None, ())
    assert Acceptance(0.0, 1.0, (0.0, 0.0)).conditional == (0.0, None)


def test_sums_are_ratios_of_sums() -> None:
    whole = acceptance.summed([Counts(1, 3, 3, (1, 1, 1)), Counts(9, 18, 0, (0, 0))])
    assert whole == Counts(10, 21, 3, (1, 1, 1))
    assert acceptance.summed([Counts(1, 3, 3), Counts(None, 3, 0)]).drafts is None
    assert acceptance.summed([]) == Counts(0, 0, 0)


def test_vllm_engines_are_summed_and_names_matched_exactly() -> None:
    found = state(VLLM)
    assert found.model == "org/m"
    assert found.drafting == Counts(40, 120, 72, (36, 28, 8))
    assert (found.tokens, found.requests) == (140, 4)
    run = since_start(VLLM)
    assert run.acceptance is not None
    assert run.acceptance.rate == pytest.approx(0.6)
    assert run.acceptance.length == pytest.approx(2.8)
    assert run.acceptance.positions == pytest.approx((0.9, 0.7, 0.2))
    assert run.speed.first_token_ms == pytest.approx(125.0)
    assert run.speed.tokens_per_second is None  # nobody knows for how long it ran


def test_off_is_not_zero() -> None:
    assert since_start(OFF).acceptance is None


def test_between_two_pages() -> None:
    later = VLLM.replace("} 30.0", "} 130.0").replace("} 90.0", "} 390.0").replace("} 50.0", "} 200.0")
    later = later.replace('engine="0",model_name="org/m"} 100.0', 'engine="0",model_name="org/m"} 400.0')
    later = later.replace('engine="1",model_name="org/m"} 130.0', 'engine="1",model_name="org/m"} 30.0')
    run = run_between(state(VLLM), state(later), 10.0, "last 10 s", "page")
    assert run.acceptance is not None
    assert run.acceptance.counts == Counts(100, 300, 150, (0, 0, 0))
    assert (run.acceptance.rate, run.acceptance.length) == (0.5, 2.5)
    assert run.speed.tokens_per_second == 30.0
    assert (run.drafted_per_second, run.accepted_per_second) == (30.0, 15.0)


def test_a_restart_in_between_is_said() -> None:
    with pytest.raises(IntegrityError, match="started again"):
        run_between(state(VLLM), state(VLLM.replace("} 50.0", "} 5.0")), 10.0, "", "page")
    with pytest.raises(IntegrityError, match="started again"):
        run_between(state(OFF), state(OFF.replace("100.0", "5.0")), 10.0, "", "page")


def test_sglang_from_its_counters() -> None:
    """250 tokens, of which 10 come from prefills, in 100 steps; a step verifies 4, of which 3 were proposed."""
    run = since_start(SGLANG)
    assert run.acceptance is not None
    assert run.acceptance.counts == Counts(100, 300, 140)
    assert run.acceptance.rate == pytest.approx((2.4 - 1) / 3)
    assert run.acceptance.length == pytest.approx(2.4)
    assert run.acceptance.positions == ()
    assert run.notes


def test_sglang_from_gauges_alone() -> None:
    gauges = "".join(line for line in SGLANG.splitlines(keepends=True) if "spec_accept" in line)
    run = since_start(gauges)
    assert run.acceptance == Acceptance(0.46, 2.4)
    assert "last logging interval" in run.notes[0]


def test_sglang_without_speculation() -> None:
    quiet = 'sglang:spec_accept_length{model_name="org/m"} 0.0\nsglang:num_running_reqs{model_name="org/m"} 0\n'
    assert since_start(quiet).acceptance is None


def test_tensorrt_llm_by_position() -> None:
    run = since_start(TENSORRT)
    assert run.acceptance is not None
    assert run.acceptance.counts == Counts(40, 80, 40, (30, 10))
    assert (run.acceptance.rate, run.acceptance.length) == (0.5, 2.0)
    assert run.acceptance.positions == (0.75, 0.25)


def test_tensorrt_llm_totals_and_its_own_length() -> None:
    text = (
        'trtllm_spec_decode_num_draft_tokens_total{model_name="m"} 80\n'
        'trtllm_spec_decode_num_accepted_tokens_total{model_name="m"} 40\n'
        'trtllm_spec_decode_acceptance_length{model_name="m"} 1.7\n'
    )
    figures = since_start(text).acceptance
    assert figures is not None
    assert (figures.rate, figures.length, figures.positions) == (0.5, 1.7, ())


def test_several_models_are_told_apart() -> None:
    both = VLLM + OFF.replace("org/m", "org/other")
    assert [(found.model, found.speculates) for found in states(samples(both, ""), "")] == [
        ("org/m", True),
        ("org/other", False),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<!doctype html><html>", "page is a web page"),
        ('{"object": "list"}', "page is no page of metrics"),
        ("process_cpu_seconds_total 3.0\n", "page holds no metrics of vLLM, SGLang or TensorRT-LLM"),
        ("", "page holds no metrics"),
        ("\x1b[31m\x00 3\n", r"page is no page of metrics \(invalid metric name:\?\[31m"),
    ],
)
def test_what_is_no_metrics_page(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        states(samples(text, "page"), "page")
