"""hf://: listings, locations and refusals against a hub on loopback, which huggingface_hub accepts as well."""

from __future__ import annotations

import errno
import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from launcher import logs
from launcher.errors import ConfigurationError, DeniedError, IntegrityError, LauncherError, NetworkError, NotFoundError
from launcher.fetch import hf
from launcher.fetch.hf_token import find_token
from launcher.fetch.remote import Digest, RemoteFile
from launcher.fetch.xet import fetch_by_xet
from launcher.sources import ModelSource, parse_source
from tests.storage.conformance import FILES, Conformance, contents, fetch, refused
from tests.storage.hub import STRANGER, TOKEN, Hub
from tests.storage.web import Fault, Reply, Server, json_reply

pytestmark = pytest.mark.usefixtures("no_waiting")


def repository(hub: Hub, text: str = "hf://org/model", **environ: str) -> hf.Repository:
    return hf.open_remote(parse_source(text, "test"), {"HF_ENDPOINT": hub.url, "HOME": "/nonexistent", **environ})


def refusal(hub: Hub, text: str = "hf://org/model", **environ: str) -> LauncherError:
    return refused(lambda: repository(hub, text, **environ))


class HubStore:
    refuses_names = False

    def __init__(self, hub: Hub) -> None:
        self.hub = hub

    def put(self, name: str, files: Mapping[str, bytes]) -> ModelSource:
        model = self.hub.models.get(name)
        before = model.commits[model.branches["main"]] if model else {}
        self.hub.add(name, {path: one.body.whole() for path, one in before.items()} | dict(files))
        return self.source(name)

    def source(self, name: str) -> ModelSource:
        return parse_source(f"hf://{name}", "test")

    def open(self, source: ModelSource) -> hf.Repository:
        return hf.open_remote(source, {"HF_ENDPOINT": self.hub.url, "HF_TOKEN": TOKEN})


class TestConformance(Conformance):
    @pytest.fixture
    def store(self, hub: Hub) -> HubStore:
        return HubStore(hub)


def test_a_branch_is_pinned_to_its_commit_once(hub: Hub) -> None:
    commit = hub.add("org/model", FILES)
    remote = repository(hub)
    listing = remote.listing()
    hub.add("org/model", {"config.json": b'{"moved": 1}'})
    assert (listing.source, listing.revision, listing.pinned) == ("hf://org/model", commit, False)
    assert {file.path: fetch(remote.locate(file)).body for file in listing.files} == FILES
    assert len(hub.ledger.asked("/revision/")) == 1


def test_digests_are_the_sha256_of_large_files_and_the_blob_of_small_ones(hub: Hub) -> None:
    hub.add("org/model", FILES)
    files = {file.path: file for file in repository(hub).listing().files}
    sha256 = hashlib.sha256(FILES["model.safetensors"]).hexdigest()
    assert files["model.safetensors"] == RemoteFile("model.safetensors", 16384, sha256, Digest("sha256", sha256))
    blob = "9e26dfeeb6e641a33dae4961196235bdb965b21b"  # git hash-object of {}
    assert files["config.json"] == RemoteFile("config.json", 2, blob, Digest("sha1", blob))


def test_a_commit_needs_no_question_about_it(hub: Hub) -> None:
    commit = hub.add("org/model", FILES)
    hub.add("org/model", {"config.json": b"newer"})
    listing = repository(hub, f"hf://org/model:{commit.upper()}").listing()
    assert (listing.revision, listing.pinned, len(listing.files)) == (commit, True, 4)
    assert not hub.ledger.asked("/revision/")


def test_a_public_branch_costs_two_questions(hub: Hub) -> None:
    hub.add("org/model", FILES)
    repository(hub).listing()
    assert [one.method for one in hub.ledger.requests] == ["GET", "GET"]


def test_branches_with_slashes(hub: Hub) -> None:
    commit = hub.add("org/model", FILES, "refs/pr/1")
    assert repository(hub, "hf://org/model:refs/pr/1").listing().revision == commit
    assert "/revision/refs%2Fpr%2F1" in hub.ledger.requests[0].raw


def test_pages_are_followed_on_our_own_endpoint(hub: Hub) -> None:
    """A mirror hands on the links of the hub behind it, which may be out of reach."""
    hub.page = 2
    hub.link_base = "https://hub.invalid"
    hub.add("org/model", FILES)
    assert [file.path for file in repository(hub).listing().files] == sorted(FILES)
    assert len(hub.ledger.asked("/tree/")) == 3


def test_the_token_goes_to_the_hub_and_not_to_its_storage(hub: Hub) -> None:
    hub.add("org/model", FILES, private=True)
    assert contents(repository(hub, HF_TOKEN=TOKEN)) == FILES
    assert {one.headers.get("authorization") for one in hub.ledger.requests} == {f"Bearer {TOKEN}"}
    assert [one.headers.get("authorization") for one in hub.storage.ledger.requests] == [None]


def test_gated_without_a_token(hub: Hub) -> None:
    hub.add("org/model", FILES, gated=True)
    error = refusal(hub)
    assert (error.code, error.what) == (4, "hf://org/model is gated, and no token is set")
    assert error.todo == (
        f"Ask for access at {hub.url}/org/model and set HF_TOKEN to a token of the account that has it"
    )


def test_gated_for_this_account(hub: Hub) -> None:
    commit = hub.add("org/model", FILES, gated=True)
    for text in ("hf://org/model", f"hf://org/model:{commit}"):
        error = refusal(hub, text, HF_TOKEN=STRANGER)
        assert error.code == 4
        assert error.what == "hf://org/model is gated, and the account of the token from HF_TOKEN has no access"
    assert hub.content == 0


def test_gated_with_access(hub: Hub) -> None:
    hub.add("org/model", FILES, gated=True)
    assert contents(repository(hub, HF_TOKEN=TOKEN)) == FILES


def test_private_or_missing_without_a_token(hub: Hub) -> None:
    hub.add("org/model", FILES, private=True)
    for name in ("hf://org/model", "hf://org/missing"):
        error = refusal(hub, name)
        assert error.code == 4
        assert error.what.startswith(f"{name} is private or does not exist: without a token the hub at ")
        assert error.todo == "Check the name, or set HF_TOKEN to a token that may read it"


def test_missing_with_a_token(hub: Hub) -> None:
    error = refusal(hub, HF_TOKEN=TOKEN)
    assert error.code == 3
    assert (
        error.what
        == f"hf://org/model does not exist on the hub at {hub.url}, or the token from HF_TOKEN may not see it"
    )


def test_a_token_that_is_not_accepted(hub: Hub) -> None:
    hub.add("org/model", FILES)
    error = refusal(hub, HF_TOKEN="hf_wrongwrongwrongwrong")
    assert error.code == 4
    assert error.what == f"the hub at {hub.url} does not accept the token from HF_TOKEN (401 for hf://org/model)"
    assert "hf_wrong" not in str(error)


def test_a_missing_revision_names_the_nearest(hub: Hub) -> None:
    hub.add("org/model", FILES)
    hub.add("org/model", FILES, "quantized-int4")
    error = refusal(hub, "hf://org/model:quantised-int4")
    assert (error.code, error.what) == (3, "hf://org/model has no revision 'quantised-int4'")
    assert error.todo == "Did you mean 'quantized-int4'?"


def test_a_missing_commit(hub: Hub) -> None:
    hub.add("org/model", FILES)
    error = refusal(hub, f"hf://org/model:{'0' * 40}")
    assert (error.code, error.what) == (3, f"hf://org/model has no revision '{'0' * 40}'")


def test_a_rate_limit_is_waited_out(hub: Hub) -> None:
    hub.add("org/model", FILES)
    hub.ledger.faults = [
        Fault("/revision/", times=2, status=429, headers={"Retry-After": "0"}),
        Fault("/tree/", status=503),
    ]
    assert len(repository(hub).listing().files) == 4
    assert (len(hub.ledger.asked("/revision/")), len(hub.ledger.asked("/tree/"))) == (3, 2)


def test_a_rate_limit_without_end(hub: Hub) -> None:
    hub.add("org/model", FILES)
    hub.ledger.faults = [Fault("/revision/", times=99, status=429, headers={"Retry-After": "300"})]
    error = refusal(hub)
    assert error.code == 5
    assert error.what == (
        f"the hub at {hub.url} limits the rate of requests (429 to {hub.url}/api/models/org/model/revision/main); "
        "it asks to wait 300 s"
    )


def test_a_hub_that_is_out_of_reach(hub: Hub) -> None:
    hub.close()
    error = refusal(hub)
    assert (error.code, error.what.startswith(f"the hub at {hub.url} cannot be reached")) == (5, True)


def test_an_answer_of_another_form_is_no_traceback() -> None:
    for answer in (json_reply([]), json_reply({"sha": "main"}), Reply(200, {"Content-Type": "text/html"})):
        server = Server(lambda asked, answer=answer: answer)  # type: ignore[misc]
        try:
            with pytest.raises(NetworkError, match="JSON"):
                hf.open_remote(parse_source("hf://a/b", "test"), {"HF_ENDPOINT": server.url}).listing()
        finally:
            server.close()


def test_a_repository_without_files(hub: Hub) -> None:
    hub.add("org/model", {})
    assert refusal(hub).what == "hf://org/model has no files at revision main"


def test_names_that_leave_the_folder(hub: Hub) -> None:
    hub.add("org/model", {"config.json": b"{}", "../x": b""})
    with pytest.raises(IntegrityError):
        repository(hub).listing()


# ---- The token


@pytest.mark.parametrize(
    ("environ", "value", "origin"),
    [
        ({"HF_TOKEN": " hf_a\n"}, "hf_a", "HF_TOKEN"),
        ({"HF_TOKEN": "hf_a", "HF_TOKEN_PATH": "{home}/token"}, "hf_a", "HF_TOKEN"),
        ({"HF_TOKEN": "hf_a", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}, "hf_a", "HF_TOKEN"),
        ({"HUGGING_FACE_HUB_TOKEN": "hf_b"}, "hf_b", "HUGGING_FACE_HUB_TOKEN"),
        ({"HF_TOKEN": " ", "HF_TOKEN_PATH": "{home}/token"}, "hf_file", "{home}/token"),
        ({"HF_HOME": "{home}"}, "hf_file", "{home}/token"),
        ({"XDG_CACHE_HOME": "{home}/xdg"}, "hf_xdg", "{home}/xdg/huggingface/token"),
        ({"HOME": "{home}"}, "hf_home", "{home}/.cache/huggingface/token"),
    ],
)
def test_where_the_token_comes_from(tmp_path: Path, environ: dict[str, str], value: str, origin: str) -> None:
    for place, text in (
        ("token", "hf_file\n"),
        ("xdg/huggingface/token", "hf_xdg"),
        (".cache/huggingface/token", " hf_home"),
    ):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(text)
    token = find_token({name: text.format(home=tmp_path) for name, text in environ.items()})
    assert token == (value, origin.format(home=tmp_path))


def test_a_token_file_is_not_used_when_that_is_switched_off(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hf_file")
    assert find_token({"HF_HOME": str(tmp_path), "HF_HUB_DISABLE_IMPLICIT_TOKEN": "yes"}) is None
    assert find_token({"HF_HOME": str(tmp_path / "nowhere")}) is None


def test_a_file_that_holds_no_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hf_secret and more")
    with pytest.raises(ConfigurationError) as raised:
        find_token({"HF_HOME": str(tmp_path)})
    assert "hf_secret" not in str(raised.value)


def test_a_token_from_a_file_is_masked_from_then_on(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("quite-a-secret-token")
    find_token({"HF_HOME": str(tmp_path)})
    assert logs.mask("got quite-a-secret-token") == "got ***"


# ---- Xet


def large_file(hub: Hub) -> tuple[hf.Repository, RemoteFile, str]:
    """A file that claims to be larger than what plain HTTP serves."""
    hub.xet.add("model.safetensors")
    hub.declared["model.safetensors"] = 60_000_000_000
    commit = hub.add("org/model", FILES)
    remote = repository(hub, HF_TOKEN=TOKEN)
    return remote, next(file for file in remote.listing().files if file.path == "model.safetensors"), commit


def test_only_files_beyond_plain_http_are_left_to_xet(hub: Hub) -> None:
    hub.xet.add("model.safetensors")
    hub.add("org/model", FILES)
    assert [file.xet for file in repository(hub).listing().files] == ["", "", "", ""]
    _, file, _ = large_file(hub)
    assert file.xet == hashlib.sha256(FILES["model.safetensors"]).hexdigest()


def test_without_hf_xet_one_sentence_says_so(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    remote, file, _ = large_file(hub)
    monkeypatch.setitem(sys.modules, "hf_xet", None)
    with pytest.raises(ConfigurationError) as raised:
        fetch_by_xet(remote, file, "/nonexistent")
    assert raised.value.what == (
        "model.safetensors of hf://org/model has 60000000000 bytes, which only Xet storage serves, "
        "and hf-xet is not installed"
    )


def test_xet_switched_off(hub: Hub) -> None:
    _, file, _ = large_file(hub)
    with pytest.raises(ConfigurationError, match="HF_HUB_DISABLE_XET is set"):
        fetch_by_xet(repository(hub, HF_HUB_DISABLE_XET="1"), file, "/nonexistent")


def test_hf_xet_gets_the_keys_of_the_hub(hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    remote, file, commit = large_file(hub)
    calls: list[Any] = []
    monkeypatch.setitem(sys.modules, "hf_xet", stand_in(calls))
    fetch_by_xet(remote, file, str(tmp_path / "part"))
    url = f"{hub.url}/api/models/org/model/xet-read-token/{commit}"
    keys = {
        "endpoint": hub.storage.url,
        "token": "keys",
        "token_expiry_unix_secs": 9999999999,
        "token_refresh_url": url,
        "token_refresh_headers": {"Authorization": f"Bearer {TOKEN}"},
    }
    assert calls == [keys, ((file.xet, file.size), str(tmp_path / "part"))]


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), OSError),
        (RuntimeError("storage failed"), NetworkError),
        (PermissionError("token expired"), NetworkError),
    ],
)
def test_how_hf_xet_fails(hub: Hub, monkeypatch: pytest.MonkeyPatch, error: Exception, raised: type[Exception]) -> None:
    remote, file, _ = large_file(hub)
    monkeypatch.setitem(sys.modules, "hf_xet", stand_in([], error))
    with pytest.raises(raised):
        fetch_by_xet(remote, file, "/nonexistent")


def stand_in(calls: list[Any], error: Exception | None = None) -> ModuleType:
    """hf_xet, as far as it is used: no server for the real one can run here."""

    class Group:
        def __enter__(self) -> Group:
            return self

        def __exit__(self, *error: object) -> None: ...

        def start_download_file(self, info: object, path: str) -> None:
            if error:
                raise error
            calls.append((info, path))

    class Session:
        def new_file_download_group(self, **keys: object) -> Group:
            calls.append(keys)
            return Group()

    module = ModuleType("hf_xet")
    module.XetSession = Session  # type: ignore[attr-defined]
    module.XetFileInfo = lambda digest, size: (digest, size)  # type: ignore[attr-defined]
    return module


def test_the_real_hf_xet_takes_these_words() -> None:
    hf_xet = pytest.importorskip("hf_xet")
    words = hf_xet.XetSession.new_file_download_group.__text_signature__
    for word in ("endpoint", "token", "token_expiry_unix_secs", "token_refresh_url", "token_refresh_headers"):
        assert f"{word}=" in words
    assert hf_xet.XetFileInfo.__text_signature__ == "(hash, file_size=None)"


# ---- The hub itself: what huggingface_hub makes of it


@pytest.mark.parametrize("page", [2, 1000])
def test_huggingface_hub_accepts_the_hub(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    errors = pytest.importorskip("huggingface_hub.errors")
    monkeypatch.setattr(pytest.importorskip("huggingface_hub.constants"), "HF_HUB_DISABLE_XET", True)
    hub.page = page
    commit = hub.add("org/model", FILES, gated=True)
    folder = huggingface_hub.snapshot_download(
        "org/model", endpoint=hub.url, token=TOKEN, cache_dir=tmp_path / "hub", max_workers=2
    )
    assert Path(folder).name == commit
    assert {path: (Path(folder) / path).read_bytes() for path in FILES} == FILES
    with pytest.raises(errors.GatedRepoError):
        huggingface_hub.snapshot_download("org/model", endpoint=hub.url, token=STRANGER, cache_dir=tmp_path / "other")
    with pytest.raises(errors.RevisionNotFoundError):
        huggingface_hub.snapshot_download(
            "org/model", revision="none", endpoint=hub.url, token=TOKEN, cache_dir=tmp_path / "hub"
        )
    with pytest.raises(errors.RepositoryNotFoundError):
        huggingface_hub.snapshot_download("org/none", endpoint=hub.url, token=False, cache_dir=tmp_path / "hub")


def test_a_mirror_that_knows_no_head(hub: Hub) -> None:
    commit = hub.add("org/model", FILES)
    hub.ledger.faults = [Fault("/resolve/", status=405, method="HEAD")]
    assert len(repository(hub, f"hf://org/model:{commit}").listing().files) == 4


def test_denied_is_not_network(hub: Hub) -> None:
    """A refusal that no waiting changes is not tried again."""
    hub.add("org/model", FILES)
    hub.ledger.faults = [Fault("/revision/", times=9, status=403)]
    error = refusal(hub)
    assert isinstance(error, DeniedError) and not isinstance(error, NotFoundError)
    assert len(hub.ledger.asked("/revision/")) == 1
