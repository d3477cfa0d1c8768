"""Names of variables: aliases, unknown ones, Service links, credentials and their files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from launcher.errors import ConfigurationError, DeniedError, LauncherError, NotFoundError
from launcher.settings.parse import EngineSetting, Given, Secret, parse_settings
from launcher.settings.variables import INERT, VARIABLES
from tests.unit.reading import TOKEN, no_file, parse, refusal

# aliases --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alias", "text", "name", "engine"),
    [
        ("NIM_HTTP_API_PORT", "9000", "NIM_SERVER_PORT", EngineSetting("--port", "9000", False, "NIM_HTTP_API_PORT")),
        (
            "NIM_KVCACHE_PERCENT",
            "0.8",
            "NIM_KV_CACHE_PERCENT",
            EngineSetting("--gpu-memory-utilization", "0.8", False, "NIM_KVCACHE_PERCENT"),
        ),
        (
            "NIM_FORCE_TRUST_REMOTE_CODE",
            "1",
            "NIM_TRUST_CUSTOM_CODE",
            EngineSetting("--trust-remote-code", None, False, "NIM_FORCE_TRUST_REMOTE_CODE"),
        ),
    ],
)
def test_an_alias_is_accepted_with_one_warning(alias: str, text: str, name: str, engine: EngineSetting) -> None:
    settings = parse_settings({alias: text}, no_file)
    assert settings.engine == (engine,)
    assert settings.warnings == (f"{alias} is read as {name}: please rename it",)


def test_an_alias_beside_its_variable() -> None:
    equal = parse(NIM_SERVER_PORT="8000", NIM_HTTP_API_PORT=" 8000")
    assert equal.engine == (EngineSetting("--port", "8000", False, "NIM_SERVER_PORT"),)
    assert equal.warnings == ()
    different = parse(NIM_MODEL_PATH="/m", NIM_MODEL_NAME="meta/llama")
    assert different.model == Given("/m", "NIM_MODEL_PATH")
    assert different.warnings == ("NIM_MODEL_NAME is 'meta/llama' and ignored: NIM_MODEL_PATH is '/m'",)


@pytest.mark.parametrize(
    ("name", "text", "alias", "other"),
    [
        ("NIM_SERVER_PORT", "8000", "NIM_HTTP_API_PORT", "08000"),
        ("NIM_KV_CACHE_PERCENT", "0.9", "NIM_KVCACHE_PERCENT", "0.90"),
        ("NIM_TRUST_CUSTOM_CODE", "1", "NIM_FORCE_TRUST_REMOTE_CODE", "True"),
    ],
)
def test_two_spellings_of_one_value_agree(name: str, text: str, alias: str, other: str) -> None:
    assert parse_settings({name: text, alias: other}, no_file).warnings == ()
    assert parse_settings({name: text, alias: "maybe"}, no_file).warnings == (
        f"{alias} is 'maybe' and ignored: {name} is {text!r}",
    )


def test_two_tokens_that_differ_are_not_shown() -> None:
    settings = parse(HF_TOKEN=TOKEN, HUGGING_FACE_HUB_TOKEN="another-token")
    assert settings.warnings == ("HUGGING_FACE_HUB_TOKEN is ignored: HF_TOKEN is set, to something else",)


def test_an_error_names_the_alias_that_the_user_wrote() -> None:
    assert refusal(NIM_HTTP_API_PORT="x").what.startswith("NIM_HTTP_API_PORT is 'x'")


# names ----------------------------------------------------------------------------------------------------------------


def test_unknown_names_warn_with_the_nearest() -> None:
    settings = parse(
        NIM_SPECDEC_ENABEL="1",
        NIM_DRAFT_MODEL="/d",
        NIM_QZX="1",
        nim_model_path="/m",
        NIM_MAX_NUM_SEQ="1",
        NIM_EMPTY="",
    )
    assert settings.warnings == (
        "NIM_DRAFT_MODEL is not a known variable and is ignored; did you mean NIM_DRAFT_MODEL_PATH?",
        "NIM_MAX_NUM_SEQ is not a known variable and is ignored; did you mean NIM_MAX_NUM_SEQS?",
        "NIM_QZX is not a known variable and is ignored",
        "NIM_SPECDEC_ENABEL is not a known variable and is ignored; did you mean NIM_SPECDEC_ENABLE?",
        "nim_model_path is not a known variable and is ignored; did you mean NIM_MODEL_PATH?",
    )


def test_strict_makes_unknown_names_an_error() -> None:
    error = refusal(NIM_STRICT="1", NIM_SPECDEC_ENABEL="1", NIM_QZX="1")
    assert (error.code, error.what, error.todo) == (
        2,
        "NIM_QZX is not a known variable",
        "Unset it, or unset NIM_STRICT",
    )
    assert [str(other) for other in error.others] == [
        "NIM_SPECDEC_ENABEL is not a known variable. Did you mean NIM_SPECDEC_ENABLE?"
    ]


@pytest.mark.parametrize("strict", ["0", "1"])
def test_the_operators_variables_never_stop_the_start(strict: str) -> None:
    settings = parse(
        NIM_STRICT=strict,
        NIM_SERVER_PORT="8000",
        NIM_HTTP_API_PORT="8000",
        NIM_JSONL_LOGGING="1",
        NIM_LOG_LEVEL="INFO",
        NIM_CACHE_PATH="/model-store",
        NIM_SDK_USE_NATIVE_TLS="1",
        OUTLINES_CACHE_DIR="/tmp/outlines",
        NIM_GRPC_API_PORT="50051",
        NIM_TRITON_GRPC_PORT="8001",
        NIM_TRITON_METRICS_PORT="8002",
        NIM_MULTI_NODE="1",
        NIM_MPI_ALLOW_RUN_AS_ROOT="0",
    )
    assert settings.warnings == ()
    assert [note.split()[0] for note in settings.notes] == [
        "NIM_SDK_USE_NATIVE_TLS",
        "NIM_GRPC_API_PORT",
        "NIM_TRITON_GRPC_PORT",
        "NIM_TRITON_METRICS_PORT",
        "NIM_MULTI_NODE",
        "NIM_MPI_ALLOW_RUN_AS_ROOT",
    ]


@pytest.mark.parametrize("row", [row for row in VARIABLES if row.status == INERT], ids=lambda row: row.name)
def test_what_has_no_effect_gives_one_line(row: Any) -> None:
    settings = parse_settings({row.name: "anything", "NIM_STRICT": "1"}, no_file)
    (line,) = (*settings.warnings, *settings.notes)
    assert line.startswith(f"{row.name} has no effect here: ")
    assert bool(settings.warnings) == (row.flag is not None)


LINKS = {
    "NIM_SERVER_PORT": "tcp://10.96.0.7:8000",
    "NIM_SERVER_SERVICE_HOST": "10.96.0.7",
    "NIM_SERVER_SERVICE_PORT": "8000",
    "NIM_SERVER_SERVICE_PORT_HTTP": "8000",
    "NIM_SERVER_PORT_8000_TCP": "tcp://10.96.0.7:8000",
    "NIM_SERVER_PORT_8000_TCP_PROTO": "tcp",
    "NIM_SERVER_PORT_8000_TCP_PORT": "8000",
    "NIM_SERVER_PORT_8000_TCP_ADDR": "10.96.0.7",
    "VLLM_PORT": "tcp://10.96.0.8:8000",
    "VLLM_PORT_8000_TCP": "tcp://10.96.0.8:8000",
    "VLLM_SERVICE_HOST": "10.96.0.8",
}


@pytest.mark.parametrize("strict", ["0", "1"])
def test_service_links_are_explained_and_ignored(strict: str) -> None:
    settings = parse_settings({**LINKS, "NIM_STRICT": strict}, no_file)
    assert settings.engine == ()
    assert settings.drop_environment == ("VLLM_PORT", "VLLM_PORT_8000_TCP", "VLLM_SERVICE_HOST")
    assert settings.warnings == (
        "NIM_SERVER_PORT and 7 more: set by Kubernetes for a Service named nim-server, not by you, and ignored; "
        "rename the Service or set enableServiceLinks: false",
        "VLLM_PORT and 2 more: set by Kubernetes for a Service named vllm, not by you, and ignored; "
        "rename the Service or set enableServiceLinks: false",
    )


def test_real_ports_are_no_links() -> None:
    settings = parse(NIM_SERVER_PORT="8000", VLLM_PORT="5000")
    assert settings.engine == (EngineSetting("--port", "8000", False, "NIM_SERVER_PORT"),)
    assert settings.drop_environment == ()


def test_an_alias_behind_a_service_link() -> None:
    settings = parse(NIM_SERVER_PORT="tcp://10.96.0.7:8000", NIM_HTTP_API_PORT="9000")
    assert settings.engine == (EngineSetting("--port", "9000", False, "NIM_HTTP_API_PORT"),)


# credentials ----------------------------------------------------------------------------------------------------------


def test_credentials_are_stripped_and_reach_the_child_clean() -> None:
    settings = parse(HF_TOKEN=f" {TOKEN}\r\n", NGC_API_KEY="clean-as-it-is")
    assert settings.secrets == (("NGC_API_KEY", Secret("clean-as-it-is")), ("HF_TOKEN", Secret(TOKEN)))
    assert settings.child_environment == (("HF_TOKEN", Secret(TOKEN)),)
    assert settings.secret("NGC_CLI_API_KEY", "NGC_API_KEY") == Secret("clean-as-it-is")
    assert settings.secret("VLLM_API_KEY") is None


def test_a_secret_file() -> None:
    settings = parse(lambda path: f"{TOKEN}\n" if path == "/run/secrets/hf" else "", HF_TOKEN_FILE=" /run/secrets/hf ")
    assert settings.secrets == settings.child_environment == (("HF_TOKEN", Secret(TOKEN)),)


def test_vllm_does_not_see_the_name_of_the_file() -> None:
    settings = parse(lambda path: "the-clients-key", VLLM_API_KEY_FILE="/run/secrets/key")
    assert settings.child_environment == (("VLLM_API_KEY", Secret("the-clients-key")),)
    assert settings.drop_environment == ("VLLM_API_KEY_FILE",)


def test_a_blank_credential_leaves_room_for_the_file() -> None:
    settings = parse(lambda path: TOKEN, HF_TOKEN=" ", HF_TOKEN_FILE="/f")
    assert settings.secrets == (("HF_TOKEN", Secret(TOKEN)),)


def raising(error: Exception) -> Callable[[str], str]:
    def read_text(path: str) -> str:
        raise error

    return read_text


@pytest.mark.parametrize(
    ("read_text", "kind", "what"),
    [
        (no_file, NotFoundError, "HF_TOKEN_FILE: the file '/run/hf' does not exist"),
        (raising(PermissionError(13, "Denied")), DeniedError, "HF_TOKEN_FILE: the file '/run/hf' may not be read"),
        (
            raising(IsADirectoryError(21, "Is a directory")),
            ConfigurationError,
            "HF_TOKEN_FILE: the file '/run/hf' cannot be read (Is a directory)",
        ),
        (
            raising(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid")),
            ConfigurationError,
            "HF_TOKEN_FILE: the file '/run/hf' cannot be read (it is not text)",
        ),
        (lambda path: " \n", ConfigurationError, "HF_TOKEN_FILE: the file '/run/hf' is empty"),
    ],
)
def test_a_secret_file_that_fails(read_text: Callable[[str], str], kind: type[LauncherError], what: str) -> None:
    error = refusal(read_text, HF_TOKEN_FILE="/run/hf")
    assert (type(error), error.what) == (kind, what)


def test_a_credential_and_its_file_at_once() -> None:
    error = refusal(lambda path: "x", HF_TOKEN=TOKEN, HF_TOKEN_FILE="/run/hf")
    assert str(error) == "HF_TOKEN and HF_TOKEN_FILE are both set. Keep one of them."


@pytest.mark.parametrize("inner", [f"{TOKEN} and more", f"{TOKEN}\nsecond-line"])
def test_white_space_inside_a_credential(inner: str) -> None:
    for error in (refusal(HF_TOKEN=inner), refusal(lambda path: inner, HF_TOKEN_FILE="/f")):
        assert error.code == 2
        assert error.what.endswith(" holds white space inside the credential")
        assert TOKEN not in str(error)


def test_a_token_in_the_place_of_its_file_is_not_shown() -> None:
    assert TOKEN not in str(refusal(HF_TOKEN_FILE=TOKEN))


def test_quotes_around_a_credential_warn() -> None:
    assert parse(HF_TOKEN=f'"{TOKEN}"').warnings == (
        "HF_TOKEN holds quotes around the credential, which will be sent with it",
    )


@pytest.mark.parametrize("character", ["\ufeff", "\u200b", "\0", "\x1b", "\udcff"])
def test_an_invisible_character_in_a_credential(character: str) -> None:
    inner = f"{TOKEN[:4]}{character}{TOKEN[4:]}"
    error = refusal(lambda path: inner, HF_TOKEN_FILE="/f")
    assert (error.code, error.what) == (2, "HF_TOKEN_FILE holds an invisible character in the credential")
    assert TOKEN[4:] not in str(error)
    assert TOKEN[4:] not in str(refusal(HF_TOKEN=inner))


def test_a_byte_order_mark_belongs_to_the_file_and_not_to_the_credential() -> None:
    settings = parse(lambda path: f"\ufeff{TOKEN}\n", HF_TOKEN_FILE="/f")
    assert settings.child_environment == (("HF_TOKEN", Secret(TOKEN)),)
    assert refusal(HF_TOKEN=f"\ufeff{TOKEN}").what == "HF_TOKEN holds an invisible character in the credential"


def test_the_file_of_an_older_name() -> None:
    settings = parse(lambda path: TOKEN, HUGGING_FACE_HUB_TOKEN_FILE="/run/hf")
    assert settings.child_environment == (("HF_TOKEN", Secret(TOKEN)),)
    assert settings.warnings == ("HUGGING_FACE_HUB_TOKEN_FILE is read as HF_TOKEN_FILE: please rename it",)
    both = parse(lambda path: TOKEN, HUGGING_FACE_HUB_TOKEN_FILE="/run/old", HF_TOKEN_FILE="/run/new")
    assert both.warnings == ("HUGGING_FACE_HUB_TOKEN_FILE is ignored: HF_TOKEN_FILE is set, to something else",)
    error = refusal(lambda path: TOKEN, HUGGING_FACE_HUB_TOKEN_FILE="/run/old", HF_TOKEN=TOKEN)
    assert error.what == "HF_TOKEN and HUGGING_FACE_HUB_TOKEN_FILE are both set"
    assert TOKEN not in str(refusal(HUGGING_FACE_HUB_TOKEN_FILE=TOKEN))


def test_an_older_name_of_the_token() -> None:
    settings = parse(HUGGING_FACE_HUB_TOKEN=TOKEN)
    assert settings.secrets == settings.child_environment == (("HF_TOKEN", Secret(TOKEN)),)


def test_strangers_are_masked_too() -> None:
    settings = parse(WANDB_API_KEY="a-strangers-key", GIT_TOKEN="short", AWS_WEB_IDENTITY_TOKEN_FILE="/var/token")
    assert settings.secrets == (("WANDB_API_KEY", Secret("a-strangers-key")),)


@pytest.mark.parametrize(
    "environ",
    [
        {"NIM_SERVER_PORT": f"port {TOKEN}"},
        {"NIM_SPECDEC_ARGS": f'{{"hf_token": "{TOKEN}" oops}}'},
        {"NIM_SPECDEC_ARGS": f'{{"a": {TOKEN}}}'},
        {"NIM_SPECDEC_ARGS": f'{{"speculative_config": "{{{TOKEN}}}"}}'},
        {f"NIM_{TOKEN}": "1", "NIM_STRICT": "1"},
    ],
)
def test_a_secret_in_the_wrong_place_is_not_shown(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_settings({**environ, "HF_TOKEN": TOKEN}, no_file)
    assert TOKEN not in str(caught.value)
    assert "*" in str(caught.value)


def test_settings_never_show_a_secret() -> None:
    settings = parse(HF_TOKEN=TOKEN, NIM_PASSTHROUGH_ARGS=f"--hf-token {TOKEN}", NIM_MODEL_PATH=f"/m/{TOKEN}")
    assert settings.passthrough == Given(("--hf-token", TOKEN), "NIM_PASSTHROUGH_ARGS")
    assert TOKEN not in repr(settings) and TOKEN not in str(settings)


def test_a_secret_shows_itself_only_when_asked() -> None:
    secret = Secret(TOKEN)
    assert (str(secret), repr(secret), f"{secret}", f"{secret:>5}") == ("***", "***", "***", "  ***")
    assert repr(Given(secret, "HF_TOKEN")) == "Given(value=***, origin='HF_TOKEN')"
    assert secret.reveal() == TOKEN
    assert secret == Secret(TOKEN) and hash(secret) == hash(Secret(TOKEN)) and secret != Secret("other")
