from __future__ import annotations

from launcher.vllm.environment import additions

HOME = {"HOME": "/home/me", "USER": "me"}


def add(environ: dict[str, str], *, offline: bool = True, known: bool = True, writable: bool = True) -> dict[str, str]:
    return additions(
        environ, state="/state", offline=offline, log_level="INFO", user_known=known, writable=lambda path: writable
    )


def test_everything_local_means_offline() -> None:
    added = add(HOME)
    assert (added["HF_HUB_OFFLINE"], added["TRANSFORMERS_OFFLINE"]) == ("1", "1")
    assert "HF_HUB_OFFLINE" not in add(HOME, offline=False)


def test_nothing_is_reported_to_anyone() -> None:
    added = add(HOME)
    assert (added["VLLM_NO_USAGE_STATS"], added["DO_NOT_TRACK"]) == ("1", "1")


def test_what_the_user_set_is_never_replaced() -> None:
    mine = {"HF_HUB_OFFLINE": "0", "VLLM_NO_USAGE_STATS": "0", "VLLM_LOGGING_LEVEL": "DEBUG", "TRITON_CACHE_DIR": "/t"}
    assert set(mine) & set(add({"HOME": "/", **mine})) == set()


def test_blank_counts_as_unset() -> None:
    assert add({**HOME, "HF_HUB_OFFLINE": " "})["HF_HUB_OFFLINE"] == "1"


def test_a_writable_home_needs_no_other_place() -> None:
    assert set(add(HOME)) == {
        "DO_NOT_TRACK",
        "HF_HUB_OFFLINE",
        "TRANSFORMERS_OFFLINE",
        "VLLM_LOGGING_LEVEL",
        "VLLM_NO_USAGE_STATS",
    }


def test_no_home_no_passwd_entry_read_only_root() -> None:
    for environ in ({}, {"HOME": "/"}, {"HOME": "/nonexistent"}):
        added = add(environ, known=False, writable=False)
        assert added["HOME"] == "/state/home"
        assert added["HF_HOME"] == "/state/huggingface"
        assert added["VLLM_CACHE_ROOT"] == "/state/vllm"
        assert added["XDG_CACHE_HOME"] == "/state/xdg/cache"
        assert added["XDG_CONFIG_HOME"] == "/state/xdg/config"
        assert added["TRITON_CACHE_DIR"] == "/state/triton"
        assert added["TORCHINDUCTOR_CACHE_DIR"] == "/state/inductor"
        assert added["USER"] == added["LOGNAME"] == "launcher"


def test_the_order_is_stable() -> None:
    assert list(add({})) == sorted(add({}))
