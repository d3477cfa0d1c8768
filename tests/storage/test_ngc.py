"""ngc://: keys, versions, pages, links and refusals against a registry on loopback, which NVIDIA's client accepts."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from launcher import logs
from launcher.errors import ConfigurationError, LauncherError, NetworkError
from launcher.fetch import ngc
from launcher.fetch.ngc import parse_target
from launcher.fetch.remote import Digest, RemoteFile
from launcher.sources import ModelSource, parse_source
from tests.storage import oracles
from tests.storage.conformance import FILES, Conformance, contents, fetch, refused
from tests.storage.loopback import certificate
from tests.storage.registry import LEGACY, PERSONAL, Registry
from tests.storage.web import Fault, Server, json_reply

pytestmark = pytest.mark.usefixtures("no_waiting")


def model(registry: Registry, text: str, **environ: str) -> ngc.Model:
    return ngc.open_remote(parse_source(text, "test"), registry.environ(**environ))


def refusal(registry: Registry, text: str, **environ: str) -> LauncherError:
    return refused(lambda: model(registry, text, **environ))


class NgcStore:
    """Each change is a new version: those of NGC never change."""

    refuses_names = False

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def put(self, name: str, files: Mapping[str, bytes]) -> ModelSource:
        team, _, of_team = name.partition("/")
        versions = self.registry.models.get(("acme", team, of_team), {})
        before = versions[next(reversed(versions))].files if versions else {}
        whole = {path: body.whole() for path, body in before.items()} | dict(files)
        self.registry.add("acme", of_team, f"{len(versions) + 1}.0", whole, team)
        return self.source(name)

    def source(self, name: str) -> ModelSource:
        return parse_source(f"ngc://acme/{name}", "test")

    def open(self, source: ModelSource) -> ngc.Model:
        return ngc.open_remote(source, self.registry.environ(NGC_API_KEY=PERSONAL))


class TestConformance(Conformance):
    @pytest.fixture
    def store(self, registry: Registry) -> NgcStore:
        return NgcStore(registry)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("ngc://acme/m", ("acme", "", "m", "", "")),
        ("ngc://acme/t/m:1.0", ("acme", "t", "m", "1.0", "")),
        ("ngc://acme/no-team/m:1.0", ("acme", "", "m", "1.0", "")),
        ("ngc://acme/t/m:1.0?file=a/b c.json", ("acme", "t", "m", "1.0", "a/b c.json")),
        ("ngc://acme/m?file=config.json", ("acme", "", "m", "", "config.json")),
    ],
)
def test_how_a_target_is_written(text: str, target: tuple[str, ...]) -> None:
    assert parse_target(parse_source(text, "test")) == target


def test_another_query_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="Write ngc://org/team/model:version"):
        parse_target(parse_source("ngc://acme/m:1.0?path=x", "test"))


def test_a_personal_key_is_used_as_it_is(registry: Registry) -> None:
    registry.add("acme", "m", "1.0", FILES)
    assert contents(model(registry, "ngc://acme/m:1.0", NGC_API_KEY=PERSONAL)) == FILES
    assert not registry.ledger.asked("/token")
    assert {one.headers["authorization"] for one in registry.ledger.requests} == {f"Bearer {PERSONAL}"}
    assert {one.headers["nv-ngc-org"] for one in registry.ledger.requests} == {"acme"}
    assert [one for one in registry.storage.ledger.requests if "authorization" in one.headers] == []


def test_a_legacy_key_is_exchanged_once_for_its_scopes(registry: Registry) -> None:
    registry.add("acme", "m", "1.0", FILES, "t")
    assert contents(model(registry, "ngc://acme/t/m:1.0", NGC_API_KEY=LEGACY)) == FILES
    (exchange,) = registry.ledger.asked("/token")
    assert exchange.raw == "/token?service=ngc&scope=group/ngc:acme&scope=group/ngc:acme/t"
    basic = base64.b64encode(f"$oauthtoken:{LEGACY}".encode()).decode()
    assert exchange.headers["authorization"] == f"Basic {basic}"
    others = [one for one in registry.ledger.requests if one is not exchange]
    assert {one.headers["authorization"] for one in others} == {"Bearer loopback-token-0"}
    assert {(one.headers["nv-ngc-org"], one.headers["nv-ngc-team"]) for one in others} == {("acme", "t")}
    assert logs.mask("loopback-token-0") == "***"


def test_a_token_is_renewed_before_its_end_and_when_it_is_refused(registry: Registry) -> None:
    registry.add("acme", "m", "1.0", FILES)
    remote = model(registry, "ngc://acme/m:1.0", NGC_API_KEY=LEGACY)
    files = remote.listing().files
    registry.tokens.clear()
    registry.tokens["another"] = ()
    assert fetch(remote.locate(files[0])).body == FILES["config.json"]
    assert len(registry.ledger.asked("/token")) == 2


def test_the_first_of_two_keys_wins(registry: Registry) -> None:
    registry.add("acme", "m", "1.0", FILES)
    model(registry, "ngc://acme/m", NGC_CLI_API_KEY=PERSONAL, NGC_API_KEY="nvapi-other").listing()
    error = refusal(registry, "ngc://acme/m", NGC_CLI_API_KEY="nvapi-other", NGC_API_KEY=PERSONAL)
    assert error.code == 4
    assert (
        error.what
        == "NGC does not accept the key from NGC_CLI_API_KEY (401 for ngc://acme/m) (Token expired or invalid)"
    )


def test_a_web_token_is_no_legacy_key(registry: Registry) -> None:
    registry.add("acme", "m", "1.0", FILES)
    registry.tokens["aGVhZA.Ym9keQ.c2ln"] = ("acme",)
    assert len(model(registry, "ngc://acme/m", NGC_API_KEY="aGVhZA.Ym9keQ.c2ln").listing().files) == 4
    assert not registry.ledger.asked("/token")


def test_the_scope_of_the_key_may_be_another_organisation(registry: Registry) -> None:
    registry.add("nvidia", "m", "1.0", FILES, "t")
    environ = {"NGC_API_KEY": LEGACY, "NGC_CLI_ORG": "acme", "NGC_CLI_TEAM": "no-team"}
    assert len(model(registry, "ngc://nvidia/t/m", **environ).listing().files) == 4
    assert registry.ledger.asked("/token")[0].raw == "/token?service=ngc&scope=group/ngc:acme"
    registry.ledger.requests.clear()
    model(registry, "ngc://nvidia/t/m", **environ | {"NGC_CLI_ORG": "no-org"}).listing()
    assert registry.ledger.asked("/token")[0].raw == "/token?service=ngc"
    assert not any("nv-ngc-org" in one.headers for one in registry.ledger.requests)


@pytest.mark.parametrize("team", ["", "t"])
def test_a_public_model_needs_no_key(registry: Registry, team: str) -> None:
    registry.add("nvidia", "m", "1.0", FILES, team)
    assert contents(model(registry, f"ngc://nvidia/{f'{team}/' if team else ''}m")) == FILES
    assert all("authorization" not in one.headers for one in registry.ledger.requests)
    assert len({one.headers["x-ngc-guest-token"] for one in registry.ledger.requests}) == 1
    assert not registry.ledger.asked("/v2/org/")


def test_without_a_version_the_newest_is_taken_once(registry: Registry) -> None:
    registry.add("acme", "m", "1.0", {"old": b""})
    registry.add("acme", "m", "1.1-fp8", FILES)
    remote = model(registry, "ngc://acme/m", NGC_API_KEY=PERSONAL)
    listing = remote.listing()
    registry.add("acme", "m", "2.0", {"new": b""})
    assert (listing.source, listing.revision, listing.pinned) == ("ngc://acme/m", "1.1-fp8", False)
    assert {file.path: fetch(remote.locate(file)).body for file in listing.files} == FILES
    assert len(registry.ledger.asked("resolve-labels=false")) == 1


def test_a_version_is_pinned(registry: Registry) -> None:
    registry.add("acme", "m", "1.0", FILES)
    registry.add("acme", "m", "2.0", {"new": b""})
    listing = model(registry, "ngc://acme/m:1.0", NGC_API_KEY=PERSONAL).listing()
    assert (listing.revision, listing.pinned, len(listing.files)) == ("1.0", True, 4)


def test_digests_are_those_of_the_registry(registry: Registry) -> None:
    registry.add("acme", "m", "1.0", FILES)
    registry.add("acme", "m", "2.0", FILES, digests=False)
    sha256 = hashlib.sha256(b"{}").hexdigest()
    with_digests = model(registry, "ngc://acme/m:1.0", NGC_API_KEY=PERSONAL).listing().files[0]
    without = model(registry, "ngc://acme/m:2.0", NGC_API_KEY=PERSONAL).listing().files[0]
    assert with_digests == RemoteFile("config.json", 2, sha256, Digest("sha256", sha256))
    assert without == RemoteFile("config.json", 2, "2.0-2", None)


def test_pages_of_files_and_of_links(registry: Registry) -> None:
    registry.page = 2
    registry.add("acme", "m", "1.0", FILES)
    assert contents(model(registry, "ngc://acme/m:1.0", NGC_API_KEY=PERSONAL)) == FILES
    assert len(registry.ledger.asked("/versions/1.0/files")) == 2
    assert len(registry.ledger.asked("/m/1.0/files")) == 2


def test_links_are_asked_for_together_and_renewed_one_by_one(registry: Registry) -> None:
    registry.add("acme", "m", "1.0", FILES)
    remote = model(registry, "ngc://acme/m:1.0", NGC_API_KEY=PERSONAL)
    files = remote.listing().files
    locations = [remote.locate(file) for file in files]
    assert [one.raw for one in registry.ledger.asked("/m/1.0/files")] == ["/v2/org/acme/models/m/1.0/files"]
    registry.generation += 1
    assert fetch(locations[1]).status == 403
    assert fetch(remote.locate(files[1])).body == FILES[files[1].path]
    assert registry.ledger.asked("/m/1.0/files")[-1].query == {"path": ["eagle3_draft/config.json"]}
    assert locations[0].headers == ()


def test_one_file_is_a_source_of_its_own(registry: Registry) -> None:
    registry.add("acme", "m", "1.0", FILES)
    remote = model(registry, "ngc://acme/m:1.0?file=eagle3_draft/config.json", NGC_API_KEY=PERSONAL)
    listing = remote.listing()
    assert (listing.source, listing.revision) == ("ngc://acme/m?file=eagle3_draft/config.json", "1.0")
    assert [file.path for file in listing.files] == ["eagle3_draft/config.json"]
    assert fetch(remote.locate(listing.files[0])).body == FILES["eagle3_draft/config.json"]


def test_a_file_that_is_not_there(registry: Registry) -> None:
    registry.add("acme", "m", "1.0", FILES)
    error = refusal(registry, "ngc://acme/m:1.0?file=confg.json", NGC_API_KEY=PERSONAL)
    assert (error.code, error.what) == (3, "ngc://acme/m:1.0 has no file 'confg.json'")
    assert error.todo == "Did you mean 'config.json'?"


def test_a_licence_that_is_not_accepted(registry: Registry) -> None:
    registry.add("acme", "m", "1.0", FILES, "t", licence=False)
    error = refusal(registry, "ngc://acme/t/m:1.0", NGC_API_KEY=PERSONAL)
    assert error.code == 4
    assert error.what == (
        "The licence of ngc://acme/t/m:1.0 is not accepted yet (The terms of this model are not accepted)"
    )
    assert error.todo == (
        "Accept it in the catalog, at https://catalog.ngc.nvidia.com/orgs/acme/teams/t/models/m, then retry"
    )


def test_an_upload_that_is_not_finished(registry: Registry) -> None:
    registry.add("acme", "m", "1.0", FILES, status="UPLOAD_PENDING")
    error = refusal(registry, "ngc://acme/m:1.0", NGC_API_KEY=PERSONAL)
    assert error.code == 3
    assert error.what == "ngc://acme/m:1.0 is not complete at NGC yet (its status is UPLOAD_PENDING)"


@pytest.mark.parametrize(
    ("text", "environ", "code", "what"),
    [
        (
            "ngc://acme/none:1.0", {"NGC_API_KEY": PERSONAL}, 3,
            "ngc://acme/none:1.0 does not exist, or cannot be seen with the key from NGC_API_KEY"
            " (Model none not found)",
        ),
        (
            "ngc://acme/m:9", {"NGC_API_KEY": PERSONAL}, 3,
            "ngc://acme/m:9 does not exist, or cannot be seen with the key from NGC_API_KEY (Version 9 not found)",
        ),
        (
            "ngc://nvidia/none", {}, 3,
            "ngc://nvidia/none does not exist, or cannot be seen without a key (Model none not found)",
        ),
        (
            "ngc://foreign/m", {"NGC_API_KEY": PERSONAL}, 4,
            "The key from NGC_API_KEY may not read ngc://foreign/m (No access to foreign)",
        ),
        (
            "ngc://acme/m", {}, 4,
            "ngc://acme/m needs a key, and neither NGC_CLI_API_KEY nor NGC_API_KEY is set (No access to acme)",
        ),
        (
            "ngc://acme/m", {"NGC_API_KEY": "nvapi-revoked"}, 4,
            "NGC does not accept the key from NGC_API_KEY (401 for ngc://acme/m) (Token expired or invalid)",
        ),
    ],
)  # fmt: skip
def test_refusals(registry: Registry, text: str, environ: dict[str, str], code: int, what: str) -> None:
    registry.add("acme", "m", "1.0", FILES)
    error = refusal(registry, text, **environ)
    assert (error.code, error.what) == (code, what)
    assert error.todo


def test_a_legacy_key_that_is_refused(registry: Registry) -> None:
    error = refusal(registry, "ngc://acme/m", NGC_API_KEY="bm8tc3VjaC1rZXk6")
    assert error.code == 4
    assert error.what == f"NGC does not accept the key from NGC_API_KEY (401 from {registry.url}/token)"
    assert "bm8tc3VjaC1rZXk6" not in str(error)


def test_warnings_of_the_registry_are_shown_once(registry: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    registry.add("acme", "m", "1.0", FILES)
    registry.warning = "This model is deprecated."
    model(registry, "ngc://acme/m:1.0", NGC_API_KEY=PERSONAL).listing()
    assert capsys.readouterr().err.count("NGC about ngc://acme/m: This model is deprecated.") == 1


def test_gateways_in_trouble_are_asked_again(registry: Registry) -> None:
    registry.add("acme", "m", "1.0", FILES)
    registry.ledger.faults = [Fault("/versions/1.0", status=502), Fault("/files?", times=2, status=429)]
    assert len(model(registry, "ngc://acme/m:1.0", NGC_API_KEY=PERSONAL).listing().files) == 4
    registry.ledger.faults = [Fault("/versions/1.0", times=99, status=504)]
    error = refusal(registry, "ngc://acme/m:1.0", NGC_API_KEY=PERSONAL)
    assert error.code == 5
    assert error.what == (
        f"NGC at {registry.url} keeps answering 504 to {registry.url}/v2/org/acme/models/m/versions/1.0"
    )


def test_a_gateway_that_speaks_html(registry: Registry) -> None:
    """Its refusal is told by the status alone."""
    registry.add("acme", "m", "1.0", FILES)
    registry.ledger.faults = [Fault("/versions/1.0", status=403, headers={"Content-Type": "text/html"})]
    error = refusal(registry, "ngc://acme/m:1.0", NGC_API_KEY=PERSONAL)
    assert (error.code, error.what) == (4, "The key from NGC_API_KEY may not read ngc://acme/m:1.0")


def test_an_answer_of_another_form_is_no_traceback() -> None:
    documents: tuple[object, ...] = ([], {"model": []}, {"modelVersion": {}}, {"modelVersion": None})
    for document in documents:
        server = Server(lambda asked, document=document: json_reply(document))  # type: ignore[misc]
        try:
            with pytest.raises(NetworkError, match="JSON of a form that is not known"):
                environ = {"NGC_CLI_API_URL": server.url, "NGC_API_KEY": "nvapi-x"}
                ngc.open_remote(parse_source("ngc://a/b:1", "test"), environ).listing()
        finally:
            server.close()


# ---- The registry itself: what NVIDIA's client makes of it

DOWNLOAD = """
import os
from ngcsdk import Client
client = Client()
if os.environ["KEY"]:
    client.configure(api_key=os.environ["KEY"], org_name="acme", team_name=os.environ["TEAM"] or None)
client.registry.model.download_version(os.environ["TARGET"], destination=".")
"""


@pytest.mark.parametrize(
    ("key", "team", "target", "folder"),
    [
        (PERSONAL, "", "acme/m:1.0", "m_v1.0"),
        (LEGACY, "t", "acme/t/m:1.0", "m_v1.0"),
        ("", "", "nvidia/m", "m_v2.0"),
    ],
)
def test_ngcsdk_accepts_the_registry(tmp_path: Path, key: str, team: str, target: str, folder: str) -> None:
    python = oracles.python_of("ngc-client", "ngc")
    authority = certificate(tmp_path)
    registry = Registry(page=3, tls=(authority.file, authority.key))
    try:
        for org, of_team, version in (("acme", "", "1.0"), ("acme", "t", "1.0"), ("nvidia", "", "2.0")):
            registry.add(org, "m", version, FILES, of_team)
        asked = {"KEY": key, "TEAM": team, "TARGET": target, "REQUESTS_CA_BUNDLE": str(authority.file)}
        done = oracles.run(python, DOWNLOAD, registry.environ(**asked), tmp_path)
        assert done.returncode == 0, done.stderr
        assert oracles.written(tmp_path / folder) == FILES
    finally:
        registry.close()
