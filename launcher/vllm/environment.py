"""What vLLM's process gets beyond the environment that the launcher was started with (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

# Under the state folder, when HOME cannot be written: every cache that the engine's libraries would put under HOME.
_CACHES = {
    "HF_HOME": "huggingface",
    "VLLM_CACHE_ROOT": "vllm",
    "VLLM_CONFIG_ROOT": "vllm/config",
    "XDG_CACHE_HOME": "xdg/cache",
    "XDG_CONFIG_HOME": "xdg/config",
    "XDG_DATA_HOME": "xdg/data",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "NUMBA_CACHE_DIR": "numba",
    "MPLCONFIGDIR": "matplotlib",
    "OUTLINES_CACHE_DIR": "outlines",
}
_QUIET = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
_ANONYMOUS = "launcher"


def additions(
    environ: Mapping[str, str],
    *,
    state: str,
    offline: bool,
    log_level: str,
    user_known: bool,
    writable: Callable[[str], bool],
) -> dict[str, str]:
    """The variables to add, sorted by name; one that the user set is never replaced.

    HOME is the exception when it cannot be written: a container runtime sets it to ``/`` for an unknown user id.
    ``state`` is a writable folder, ``user_known`` whether the user id has a passwd entry.
    """
    wanted = {**_QUIET, "VLLM_LOGGING_LEVEL": log_level}
    if offline:
        wanted |= _OFFLINE
    home = environ.get("HOME", "")
    homeless = home in ("", "/") or not writable(home)
    if homeless:
        wanted |= {name: f"{state}/{folder}" for name, folder in _CACHES.items()}
    if not user_known:
        # Several libraries ask for the user's name and fail without a passwd entry.
        wanted |= {"USER": _ANONYMOUS, "LOGNAME": _ANONYMOUS, "TORCHINDUCTOR_CACHE_DIR": f"{state}/inductor"}
    added = {name: value for name, value in wanted.items() if not environ.get(name, "").strip()}
    if homeless:
        added["HOME"] = f"{state}/home"
    return dict(sorted(added.items()))
