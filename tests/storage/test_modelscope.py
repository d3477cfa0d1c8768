"""modelscope://: listings, locations and refusals against a hub on loopback, which ModelScope's client accepts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from launcher.errors import IntegrityError, LauncherError, NetworkError
from launcher.fetch import modelscope
from launcher.fetch.remote import Digest, RemoteFile
from launcher.sources import ModelSource, parse_source
from tests.storage import oracles
from tests.storage.conformance import FILES, Conformance, contents, fetch, refused
from tests.storage.scope import TOKEN, Scope
from tests.storage.web import Fault, Server, json_reply

pytestmark = pytest.mark.usefixtures("no_waiting")


def repository(scope: Scope, text: str = "modelscope://org/model", **environ: str) -> modelscope.Repository:
    return modelscope.open_remote(parse_source(text, "test"), {"MODELSCOPE_ENDPOINT": scope.url, **environ})


def refusal(scope: Scope, text: str = "modelscope://org/model", **environ: str) -> LauncherError:
    return refused(lambda: repository(scope, text, **environ))


class ScopeStore:
    refuses_names = False

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def put(self, name: str, files: Mapping[str, bytes]) -> ModelSource:
        before = self.scope.models.get(name, {}).get("master", {})
        self.scope.add(name, {path: body.whole() for path, body in before.items()} | dict(files))
        return self.source(name)

    def source(self, name: str) -> ModelSource:
        return parse_source(f"modelscope://{name}", "test")

    def open(self, source: ModelSource) -> modelscope.Repository:
        return modelscope.open_remote(source, {"MODELSCOPE_ENDPOINT": self.scope.url, "MODELSCOPE_API_TOKEN": TOKEN})


class TestConformance(Conformance):
    @pytest.fixture(params=[True, False], ids=["names its commit", "names no commit"])
    def store(self, scope: Scope, request: pytest.FixtureRequest) -> ScopeStore:
        scope.names_commit = request.param
        return ScopeStore(scope)


def test_a_branch_is_pinned_to_the_commit_of_its_listing(scope: Scope) -> None:
    commit = scope.add("org/model", FILES)
    remote = repository(scope)
    listing = remote.listing()
    scope.add("org/model", {"config.json": b'{"moved": 1}'})
    assert (listing.source, listing.revision, listing.pinned) == ("modelscope://org/model", commit, False)
    assert {file.path: fetch(remote.locate(file)).body for file in listing.files} == FILES
    assert scope.ledger.requests[0].query["Revision"] == ["master"]


def test_a_service_that_names_no_commit(scope: Scope) -> None:
    """The digest of the listing stands for the revision, and the branch is what files are asked for."""
    scope.names_commit = False
    scope.add("org/model", FILES)
    remote = repository(scope)
    listing = remote.listing()
    assert len(listing.revision) == 64
    assert contents(remote) == FILES
    assert {one.query["Revision"][0] for one in scope.ledger.requests} == {"master"}


def test_a_commit_is_pinned(scope: Scope) -> None:
    commit = scope.add("org/model", FILES)
    scope.add("org/model", {"config.json": b"newer"})
    listing = repository(scope, f"modelscope://org/model:{commit}").listing()
    assert (listing.revision, listing.pinned, len(listing.files)) == (commit, True, 4)


def test_digests_are_those_of_the_service(scope: Scope) -> None:
    scope.add("org/model", FILES)
    sha256 = hashlib.sha256(b"{}").hexdigest()
    assert repository(scope).listing().files[0] == RemoteFile("config.json", 2, sha256, Digest("sha256", sha256))


def test_the_token_goes_to_the_service_and_not_to_its_storage(scope: Scope) -> None:
    scope.add("org/model", FILES, private=True)
    assert contents(repository(scope, MODELSCOPE_API_TOKEN=TOKEN)) == FILES
    sent = {(one.headers["authorization"], one.headers["cookie"]) for one in scope.ledger.requests}
    assert sent == {(f"Bearer {TOKEN}", f"m_session_id={TOKEN}")}
    assert len(scope.storage.ledger.requests) == 1


def test_a_listing_that_is_cut_off_is_walked(scope: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modelscope, "_CUT", 12)
    scope.cut = 12
    files = {f"{folder}/{number}": b"x" for folder in ("a", "b", "c/d", "c/e") for number in range(9)}
    scope.add("org/model", {"config.json": b"{}", **files})
    assert [file.path for file in repository(scope).listing().files] == sorted(("config.json", *files))


def test_a_folder_that_cannot_be_listed_is_no_model(scope: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modelscope, "_CUT", 12)
    scope.cut = 12
    scope.add("org/model", {f"a/{number}": b"x" for number in range(20)})
    with pytest.raises(IntegrityError, match="more than 11 entries in a, and ModelScope lists no more"):
        repository(scope).listing()


def test_a_denial_within_a_listing_passes(scope: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modelscope, "_CUT", 6)
    scope.cut = 6
    scope.add("org/model", {f"{folder}/{number}": b"x" for folder in "ab" for number in range(4)})
    scope.ledger.faults = [Fault("Root=a", times=2, status=403)]
    assert len(repository(scope).listing().files) == 8


@pytest.mark.parametrize(
    ("text", "environ", "code", "what", "todo"),
    [
        (
            "modelscope://org/none", {}, 3,
            "modelscope://org/none does not exist on ModelScope at {url}, or is private and no token is set"
            " (模型不存在)",
            "Check the name",
        ),
        (
            "modelscope://org/model:mastre", {}, 3,
            "modelscope://org/model has no revision 'mastre' (revision mastre not found)", "Did you mean 'master'?",
        ),
        (
            "modelscope://org/model", {"MODELSCOPE_API_TOKEN": "ms-wrong"}, 4,
            "ModelScope at {url} does not accept the token from MODELSCOPE_API_TOKEN"
            " (AccessToken is invalid or expired)",
            "Renew the token",
        ),
    ],
)  # fmt: skip
def test_refusals(scope: Scope, text: str, environ: dict[str, str], code: int, what: str, todo: str) -> None:
    scope.add("org/model", FILES)
    error = refusal(scope, text, **environ)
    assert (error.code, error.what, error.todo) == (code, what.format(url=scope.url), todo)


def test_a_model_that_is_not_open_to_everybody(scope: Scope) -> None:
    scope.add("org/model", FILES)
    scope.ledger.faults = [Fault("/repo/files", times=9, status=403)]
    error = refusal(scope)
    assert (error.code, error.what) == (4, "modelscope://org/model is not open to a caller without a token")
    assert len(scope.ledger.asked("/repo/files")) == 1


@pytest.mark.parametrize(("code", "exit_code"), [(401, 4), (10010205001, 3)])
def test_a_refusal_that_says_200(code: int, exit_code: int) -> None:
    server = Server(lambda asked: json_reply({"Code": code, "Data": None, "Message": "no.", "Success": False}))
    try:
        with pytest.raises(LauncherError) as raised:
            environ = {"MODELSCOPE_ENDPOINT": server.url}
            modelscope.open_remote(parse_source("modelscope://a/b", "test"), environ).listing()
        assert raised.value.code == exit_code
        assert raised.value.what.endswith("(no)")
    finally:
        server.close()


def test_an_answer_of_another_form_is_no_traceback() -> None:
    documents: tuple[object, ...] = ([], {"Data": "x"}, {"Data": {"Files": [{}]}})
    for document in documents:
        server = Server(lambda asked, document=document: json_reply(document))  # type: ignore[misc]
        try:
            with pytest.raises(NetworkError, match="JSON of a form that is not known"):
                environ = {"MODELSCOPE_ENDPOINT": server.url}
                modelscope.open_remote(parse_source("modelscope://a/b", "test"), environ).listing()
        finally:
            server.close()


def test_the_endpoint_may_be_a_bare_host() -> None:
    source = parse_source("modelscope://a/b", "test")
    file = RemoteFile("x y.json", 1, "", None)
    bare = modelscope.open_remote(source, {"MODELSCOPE_ENDPOINT": "www.modelscope.ai"})
    assert bare.locate(file).url == "https://www.modelscope.ai/api/v1/models/a/b/repo?Revision=master&FilePath=x+y.json"
    assert modelscope.open_remote(source, {}).locate(file).url.startswith("https://modelscope.cn/api/v1/models/a/b/")


# ---- The hub itself: what ModelScope's client makes of it

DOWNLOAD = """
import os
from modelscope_hub import HubApi
api = HubApi(endpoint=os.environ["URL"], token=os.environ["TOKEN"] or None)
api.download_repo("org/model", "model", local_dir="files", revision=os.environ["REVISION"])
"""


@pytest.mark.parametrize(("token", "revision"), [("", "master"), (TOKEN, "commit")])
def test_modelscope_hub_accepts_the_hub(scope: Scope, tmp_path: Path, token: str, revision: str) -> None:
    python = oracles.python_of("modelscope-client", "modelscope")
    commit = scope.add("org/model", FILES, private=bool(token))
    environ = {"URL": scope.url, "TOKEN": token, "REVISION": commit if revision == "commit" else revision}
    done = oracles.run(python, DOWNLOAD, environ, tmp_path)
    assert done.returncode == 0, done.stderr
    assert oracles.written(tmp_path / "files") == FILES
    asked = {one.path for one in scope.ledger.requests}
    assert {"/api/v1/models/org/model/repo/files", "/api/v1/models/org/model/repo"} <= asked
