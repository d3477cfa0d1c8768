"""Faults that other launchers and download tools shipped, each with the tests that show it cannot happen here.

The table is checked: a test that is renamed or removed must be replaced by one that shows the same.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

TESTS = Path(__file__).parents[1]


class Fault(NamedTuple):
    """What went wrong, where it was reported in public, and the tests: "folder/file.py::name"."""

    what: str
    where: str
    shown_by: tuple[str, ...]


def fault(what: str, where: str, *shown_by: str) -> Fault:
    return Fault(what, where, shown_by)


STORES = "storage/conformance.py::"
USE = "storage/cache/test_use.py::"
COMMANDS = "storage/cache/test_commands.py::"
STRANGERS = "storage/cache/test_strangers.py::"
TRANSFER = "storage/test_transfer_faults.py::"
IMAGE = "image/test_image.py::"

FAULTS = (
    # Listing an object store, and what keys become on disk.
    fault(
        "a prefix also brought the sibling whose name begins the same",
        "kserve/kserve#3776",
        STORES + "test_the_neighbour_whose_name_begins_the_same_is_left_out",
        "storage/test_s3.py::test_with_and_without_the_final_slash_is_one_source",
        USE + "test_only_the_changed_objects_of_a_bucket_are_fetched",
    ),
    fault(
        "one object was taken for a folder, or the reverse",
        "kserve/kserve#2473",
        STORES + "test_one_object_is_not_a_folder",
    ),
    fault(
        "an empty key that ends in a slash was written as a file",
        "kserve/kserve#379",
        STORES + "test_folder_markers_are_no_files",
        STORES + "test_markers_alone_are_no_model",
    ),
    fault(
        "markers without a slash blocked their folder, or real empty files were dropped",
        "mlflow/mlflow#25137",
        STORES + "test_an_empty_file_is_a_marker_only_with_files_below_it",
        "unit/test_cache_names.py::test_an_empty_object_without_children_is_a_file",
    ),
    fault(
        "names with '..', a leading slash, or a link on the way wrote outside the folder",
        "peak/s5cmd#872",
        STORES + "test_a_name_that_leaves_the_folder_is_refused",
        "storage/test_hf.py::test_names_that_leave_the_folder",
        STRANGERS + "test_a_hub_cannot_name_files_outside_the_cache",
        STRANGERS + "test_a_mirror_cannot_name_files_outside_the_cache",
        STRANGERS + "test_a_link_in_the_cache_does_not_lead_out_of_it",
    ),
    fault(
        "characters that mean something in a URL or a pattern cut a key, or matched too much",
        "aws/aws-sdk-java-v2#4359",
        STORES + "test_three_keys_that_a_url_parser_would_confuse",
        STORES + "test_a_prefix_is_literal",
        STORES + "test_odd_names_are_literal",
    ),
    fault(
        "only the first page of a listing was read",
        "vllm-project/aibrix, its TOS downloader",
        STORES + "test_a_listing_goes_to_the_last_page",
        "storage/test_s3_demands.py::test_pages_are_followed_to_the_end",
        "storage/test_gs_demands.py::test_pages_are_followed_to_the_end",
    ),
    fault("sub-folders were lost", "kserve/kserve#817", STORES + "test_folders_are_kept"),
    # Credentials, endpoints, transport.
    fault(
        "the way in which requests name their bucket was fixed",
        "kserve/kserve#2883",
        "storage/test_s3_demands.py::test_where_a_request_names_its_bucket",
        "storage/test_s3_demands.py::test_amazon_itself_is_asked_by_host_name_unless_told_otherwise",
    ),
    fault(
        "an empty endpoint variable became an address; only one of two endpoint variables was read",
        "kserve/kserve#213, run-ai/runai-model-streamer#34",
        "storage/test_s3_demands.py::test_endpoints",
        "unit/test_environment.py::test_blank_counts_as_unset",
    ),
    fault(
        "newer checksums were asked of stores that do not know them",
        "boto/boto3#4512",
        "storage/test_s3_demands.py::test_a_store_that_knows_no_checksums",
    ),
    fault(
        "a bucket whose requester pays gave a plain denial",
        "aws/aws-cli#797",
        "storage/test_s3_demands.py::test_who_requests_pays_only_where_that_is_allowed",
        "storage/test_s3_demands.py::test_refusals",
        "storage/test_gs_demands.py::test_who_requests_pays",
    ),
    fault(
        "a public bucket could not be read without credentials, or a metadata server was waited for",
        "operatorai/modelstore#173",
        "storage/test_gs_demands.py::test_a_public_bucket",
        "storage/test_gs_demands.py::test_a_private_bucket_without_credentials",
        "storage/test_gs_demands.py::test_a_metadata_server_that_is_not_there_is_not_waited_for",
        "storage/test_s3_demands.py::test_a_machine_without_metadata_service_is_not_waited_for",
    ),
    fault(
        "a token stood on the command line and in the log",
        "vllm-project/vllm#53625",
        "integration/test_serve.py::test_secrets_go_by_environment",
        "integration/test_plan.py::test_secrets_are_masked",
        "storage/test_s3_demands.py::test_neither_errors_nor_logs_show_a_secret",
    ),
    fault(
        "a token became a label of a metric",
        "vllm-project/vllm#32440",
        "integration/test_serve.py::test_a_token_among_the_arguments_goes_by_environment",
        "engine/test_fetched.py::test_target_in_a_bucket_and_draft_on_a_hub",
    ),
    fault(
        "many pods at once failed at a rate limit",
        "huggingface/huggingface_hub#3312",
        "storage/test_hf.py::test_a_rate_limit_is_waited_out",
        "storage/test_hf.py::test_a_rate_limit_without_end",
        TRANSFER + "test_retry_after_is_honoured",
        "unit/test_cache_bring.py::test_a_pinned_source_is_never_asked_again",
    ),
    fault(
        "each client read another variable for authorities and proxies, or a bundle replaced the public roots",
        "huggingface/transformers#17611",
        "storage/test_rest.py::test_a_private_authority",
        "storage/test_s3_demands.py::test_a_private_authority_is_trusted",
        TRANSFER + "test_a_private_authority",
        TRANSFER + "test_a_missing_authority_is_said_before_anything_is_fetched",
        "storage/test_sdk_environment.py::test_a_bundle_adds_to_the_authorities_and_replaces_none",
        "storage/test_rest.py::test_which_proxy",
        "storage/test_rest.py::test_no_proxy_is_honoured",
        "storage/test_rest.py::test_a_proxy_that_cannot_be_used_is_refused_for_every_source",
    ),
    # Completeness, integrity, resume, disk.
    fault(
        "content with the wrong hash was a success",
        "huggingface/huggingface_hub#3643",
        TRANSFER + "test_a_fault_that_stays_is_the_documented_error",
        TRANSFER + "test_every_digest_finds_a_wrong_byte",
        COMMANDS + "test_a_wrong_byte_of_a_mirror_is_seen",
    ),
    fault(
        "a failure in the middle gave the old folder for the new revision",
        "huggingface/huggingface_hub#3007",
        USE + "test_a_hub_that_fails_midway_never_gives_the_old_for_the_new",
        "unit/test_cache_bring.py::test_a_change_that_cannot_be_completed_fails",
    ),
    fault(
        "a folder that exists counted as complete, and new content at the same address was never seen",
        "deepjavalibrary/djl-serving, ModelInfo.java",
        USE + "test_only_the_changed_objects_of_a_bucket_are_fetched",
        "unit/test_cache_bring.py::test_only_what_changed_is_fetched",
        "unit/test_cache_crashes.py::test_a_kill_at_any_step",
        "storage/test_crash.py::test_killed_once_and_finished",
    ),
    fault(
        "an answer that ended early, without a length, was only a warning",
        "basetenlabs/truss, download_core.rs",
        TRANSFER + "test_a_fault_that_passes_leaves_no_trace",
        TRANSFER + "test_a_fault_that_stays_is_the_documented_error",
    ),
    fault(
        "cut weights, error pages and pointer files passed for weights",
        "osaurus-ai/vmlx-swift#217",
        "integration/test_cases.py::test_files_that_are_not_what_they_claim",
        "integration/test_cases.py::test_an_index_that_names_absent_shards",
        "unit/test_cache_verify.py::test_a_foreign_file_of_the_right_size_is_seen_by_structure",
    ),
    fault(
        "nothing could verify what was carried to a machine without a network",
        "huggingface/huggingface_hub#2364",
        COMMANDS + "test_verify_tells_each_kind_of_difference",
        COMMANDS + "test_a_store_is_verified_where_it_was_carried_to",
    ),
    fault(
        "the same weights came in several formats",
        "huggingface/huggingface_hub#2831",
        "unit/test_cache_duplicates.py::test_a_complete_set_of_safetensors_is_enough",
        "unit/test_cache_duplicates.py::test_the_bytes_saved_are_said",
        "unit/test_cache_duplicates.py::test_mistral_files_stay_when_their_format_is_asked_for",
    ),
    fault(
        "needed files in sub-folders were left out",
        "ai-dynamo/modelexpress, huggingface.rs",
        STORES + "test_folders_are_kept",
        "storage/test_launch.py::test_a_draft_inside_the_target_repository",
    ),
    fault(
        "the download was killed for its memory",
        "kserve/kserve#5326",
        TRANSFER + "test_memory_does_not_grow_with_the_files",
    ),
    fault(
        "a link that was there already was kept although it leads to another model",
        "kserve/kserve, kserve_storage.py",
        "integration/test_cases.py::test_a_link_to_another_draft_is_replaced",
        "unit/test_workspace.py::test_a_folder_that_is_not_ours_is_not_touched",
        "unit/test_workspace.py::test_a_real_file_in_our_workspace_is_never_replaced",
    ),
    # Links, mounts, locks, shared caches.
    fault(
        "a snapshot folder was mounted without the blobs that its links lead to",
        "deepjavalibrary/djl-serving#1673",
        "unit/test_local.py::test_a_dangling_link_is_named",
        "unit/test_local.py::test_many_dangling_links_are_counted",
        "unit/test_cache_hubs.py::test_a_snapshot_without_its_blobs",
    ),
    fault(
        "a relative cache folder made broken links; cache and scratch on two volumes failed",
        "huggingface/huggingface_hub#1388",
        USE + "test_a_relative_cache_is_refused_before_anything_is_made",
        USE + "test_a_disk_too_small_for_both_is_known_beforehand",
    ),
    fault(
        "a file system without locks hung, or failed",
        "huggingface/huggingface_hub#2399",
        "unit/test_cache_locks.py::test_without_lock_support_one_warning_and_on",
        USE + "test_launchers_at_once_without_locks",
        "storage/test_repair.py::test_repairs_without_the_lock_lose_nothing",
    ),
    fault(
        "a lock of a killed or stuck process was waited for in silence, for ever",
        "huggingface/huggingface_hub#2543",
        USE + "test_a_killed_launcher_leaves_no_lock",
        USE + "test_a_wait_ends",
        COMMANDS + "test_prune_needs_sole_use",
        "unit/test_cache_locks.py::test_waiting_is_said_again_and_again_and_has_an_end",
    ),
    fault(
        "a read-only volume was written to",
        "kserve/kserve#3687",
        USE + "test_a_complete_cache_needs_no_write",
        USE + "test_a_read_only_volume_serves",
        "integration/test_rough_ground.py::test_a_model_folder_is_never_written_to",
    ),
    fault(
        "a cache of another user gave a bare error",
        "llm-d/llm-d#485",
        STRANGERS + "test_a_cache_of_somebody_else_is_denied",
        "unit/test_places.py::test_an_unwritable_cache_is_said",
    ),
    fault(
        "two addresses shared a folder because of a short hash",
        "vllm-project/vllm, its model streamer's cache",
        "unit/test_cache_manifest.py::test_two_sources_never_share_a_place",
        "unit/test_cache_bring.py::test_an_entry_of_another_source_is_refused",
    ),
    # Without a network.
    fault(
        "the hub was asked although every file is on this machine",
        "vllm-project/vllm#39039",
        "integration/test_serve.py::test_everything_local_means_offline",
        "unit/test_environment.py::test_what_the_user_set_is_never_replaced",
        "engine/test_fetched.py::test_target_in_a_bucket_and_draft_on_a_hub",
    ),
    fault(
        "the draft was gated, which showed only after the target had come",
        "noonghunna/club-3090#322",
        USE + "test_a_gated_draft_stops_before_the_target_is_fetched",
        "storage/test_launch.py::test_a_gated_draft",
    ),
    fault(
        "the reason of a failure without network was lost",
        "neutree-ai/neutree#619",
        USE + "test_offline_and_not_cached_is_not_found",
        USE + "test_the_reason_stands_where_kubernetes_looks_for_it",
    ),
    # In a container.
    fault(
        "a random user id without a passwd entry had no home, and the engine's caches went to the root",
        "llm-d/llm-d#1430",
        IMAGE + "test_runs_as",
        "image/test_engine.py::test_a_completion_with_speculation_in_a_container_that_may_do_nothing",
    ),
    fault("a user id without a name ended in a KeyError", "IBM/ado#1261", IMAGE + "test_an_unknown_user_has_a_name"),
    fault(
        "the interpreter lay below /root, and only root could run the image",
        "huggingface/text-generation-inference#3082",
        IMAGE + "test_nothing_lies_below_root",
    ),
    fault(
        "a read-only root met an entry script that edits /etc/passwd",
        "xencon/aixcl#836",
        IMAGE + "test_runs_as",
        "image/test_derived.py::test_nothing_else_is_executed_at_start",
    ),
    fault(
        "64 MB of shared memory: NCCL failed or hung",
        "vllm-project/vllm#1710",
        "image/test_running.py::test_little_shared_memory",
        "unit/test_shared_memory.py::test_dockers_default_is_too_small",
    ),
    fault(
        "a cache folder that the user chose was replaced",
        "vllm-project/vllm#48806",
        IMAGE + "test_a_cache_that_the_user_chose_stays",
    ),
    fault(
        "SIGTERM during the download ended in exit code 0",
        "huggingface/text-generation-inference, its launcher",
        "image/test_running.py::test_stop_during_a_download",
    ),
)


@cache
def named_in(path: str) -> frozenset[str]:
    """The test functions of a file, also those in classes."""
    nodes = ast.walk(ast.parse((TESTS / path).read_text()))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"))


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.what for fault in FAULTS])
def test_every_fault_is_shown_by_tests_that_exist(fault: Fault) -> None:
    assert fault.shown_by
    for one in fault.shown_by:
        path, _, name = one.partition("::")
        assert name in named_in(path), one


@pytest.mark.parametrize(
    ("rules", "scheme"),
    [
        *(("Conformance", scheme) for scheme in ("hf", "ngc", "modelscope")),
        *(("PrefixConformance", scheme) for scheme in ("s3", "gs")),
    ],
)
def test_every_scheme_runs_the_rules(rules: str, scheme: str) -> None:
    bases = {
        base.id if isinstance(base, ast.Name) else ast.unparse(base)
        for node in ast.walk(ast.parse((TESTS / f"storage/test_{scheme}.py").read_text()))
        if isinstance(node, ast.ClassDef)
        for base in node.bases
    }
    assert rules in bases
