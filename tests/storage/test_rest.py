"""The client for small questions: retries and their limits, redirects, proxies, private authorities, odd answers."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path

import pytest

from launcher.errors import ConfigurationError, NetworkError
from launcher.fetch import rest
from launcher.fetch.proxies import proxy_for
from launcher.fetch.rest import Answer, Service, address
from launcher.fetch.schemes import open_remote
from launcher.sources import parse_source
from tests.storage.loopback import certificate
from tests.storage.web import Asked, Body, Fault, Reply, Server, json_reply

SECRETS = {"Authorization": "Bearer secret", "Cookie": "m_session_id=secret"}


def hello(asked: Asked) -> Reply:
    return json_reply({"hello": asked.path})


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(answer: Callable[[Asked], Reply] = hello, **more: object) -> Server:
        servers.append(Server(answer, **more))  # type: ignore[arg-type]
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def at(server: Server, **environ: str) -> tuple[Service, list[float]]:
    """The service, and the pauses that it makes (it makes none really)."""
    pauses: list[float] = []
    return Service("the service", server.url, environ, pause=pauses.append), pauses


def names(answer: Answer) -> str:
    return answer.read(lambda facts: str(facts["hello"]))


def test_an_answer_is_read(serve: Callable[..., Server]) -> None:
    server = serve()
    service, pauses = at(server)
    answer = service.ask("/a%20b?q=secret", {})
    assert (answer.service, answer.url, answer.status) == ("the service", f"{server.url}/a%20b", 200)
    assert (names(answer), pauses) == ("/a b", [])
    (asked,) = server.ledger.requests
    assert asked.headers["user-agent"].startswith("specdec-launcher/")
    assert (asked.headers["accept"], asked.headers["accept-encoding"]) == ("application/json", "identity")


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_what_may_pass_is_tried_again(serve: Callable[..., Server], status: int) -> None:
    server = serve()
    server.ledger.faults = [Fault("/", times=2, status=status)]
    service, pauses = at(server)
    assert names(service.ask("/x", {})) == "/x"
    assert len(pauses) == 2
    assert 0.25 <= pauses[0] <= 0.5 <= pauses[1] <= 1.0


@pytest.mark.parametrize("status", [400, 401, 403, 404, 412, 501])
def test_what_does_not_pass_is_the_caller_s(serve: Callable[..., Server], status: int) -> None:
    server = serve()
    server.ledger.faults = [Fault("/", times=9, status=status)]
    service, pauses = at(server)
    assert (service.ask("/x", {}).status, pauses) == (status, [])


def test_tries_are_bounded(serve: Callable[..., Server]) -> None:
    server = serve()
    server.ledger.faults = [Fault("/", times=99, status=503)]
    service, pauses = at(server)
    with pytest.raises(NetworkError) as raised:
        service.ask("/x?token=secret", {})
    assert raised.value.what == f"the service keeps answering 503 to {server.url}/x"
    assert len(server.ledger.requests) == len(pauses) + 1
    assert rest.PATIENCE - 9.0 <= sum(pauses) <= rest.PATIENCE  # another pause might have gone beyond


@pytest.mark.parametrize(
    ("header", "value", "seconds"),
    [
        ("Retry-After", "7", 7.0),
        ("Retry-After", "DATE", 8.5),  # nine seconds from now, in whole seconds
        ("RateLimit", '"api";r=0;t=11', 11.0),
        ("Retry-After", "soon", 0.25),
    ],
)
def test_the_wait_that_a_service_asks_for(
    serve: Callable[..., Server], header: str, value: str, seconds: float
) -> None:
    server = serve()
    value = value.replace("DATE", formatdate(time.time() + 9, usegmt=True))
    server.ledger.faults = [Fault("/", status=429, headers={header: value})]
    service, pauses = at(server)
    service.ask("/x", {})
    # A date has whole seconds, so it may name any wait from 8 s to 9 s; the spread adds half a second.
    early, late = (1.0, 0.5) if value.endswith("GMT") else (0.0, 0.0)
    assert len(pauses) == 1 and seconds - early <= pauses[0] <= seconds + late + 0.5


def test_a_wait_beyond_all_patience_is_not_begun(serve: Callable[..., Server]) -> None:
    server = serve()
    server.ledger.faults = [Fault("/", times=9, status=429, headers={"Retry-After": "4000"})]
    service, pauses = at(server)
    with pytest.raises(NetworkError, match=r"limits the rate of requests .*; it asks to wait 4000 s"):
        service.ask("/x", {})
    assert pauses == []


def test_a_deadline_ends_the_tries(serve: Callable[..., Server]) -> None:
    server = serve()
    server.ledger.faults = [Fault("/", times=9, delay=5.0)]
    service, _ = at(server)
    start = time.monotonic()
    with pytest.raises(NetworkError, match="cannot be reached"):
        service.within(0.3).ask("/x", {})
    assert time.monotonic() - start < 2.0


def test_more_statuses_may_pass(serve: Callable[..., Server]) -> None:
    server = serve()
    server.ledger.faults = [Fault("/", status=403)]
    service, _ = at(server)
    assert names(service.ask("/x", {}, also_transient=(403,))) == "/x"


def test_an_answer_that_breaks_off_is_asked_for_again(serve: Callable[..., Server]) -> None:
    server = serve()
    server.ledger.faults = [Fault("/", cut=3)]
    service, pauses = at(server)
    assert (names(service.ask("/x", {})), len(pauses)) == ("/x", 1)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
    service = Service("the service", f"http://127.0.0.1:{port}", {}, pause=lambda seconds: None)
    with pytest.raises(NetworkError) as raised:
        service.ask("/x", {})
    assert raised.value.what == f"the service cannot be reached at http://127.0.0.1:{port}/x: Connection refused"


def test_a_name_that_does_not_exist() -> None:
    service = Service("the service", "http://nowhere.invalid", {}, pause=lambda seconds: None)
    with pytest.raises(NetworkError, match=r"the service cannot be reached at http://nowhere\.invalid/x: "):
        service.ask("/x", {})


@pytest.mark.parametrize(
    ("reply", "what"),
    [
        (Reply(200, {"Content-Type": "text/html"}, Body(b"<html>")), "with text/html instead of JSON"),
        (json_reply([1]), "with JSON of a form that is not known here"),
    ],
)
def test_answers_that_nobody_can_read(serve: Callable[..., Server], reply: Reply, what: str) -> None:
    service, _ = at(serve(lambda asked: reply))
    with pytest.raises(NetworkError, match=what):
        names(service.ask("/x", {}))


# ---- Redirects


def test_credentials_stay_with_their_host(serve: Callable[..., Server]) -> None:
    other = serve(host="127.0.0.2")
    server = serve(lambda asked: Reply(302, {"Location": f"{other.url}/there"}))
    service, _ = at(server)
    assert names(service.ask("/x", SECRETS)) == "/there"
    (first,), (second,) = server.ledger.requests, other.ledger.requests
    assert (first.headers["authorization"], first.headers["cookie"]) == ("Bearer secret", "m_session_id=secret")
    assert not {"authorization", "cookie"} & set(second.headers)


def test_credentials_follow_within_the_host(serve: Callable[..., Server]) -> None:
    server = serve(lambda asked: Reply(307, {"Location": "/renamed"}) if asked.path == "/x" else hello(asked))
    service, _ = at(server)
    assert names(service.ask("/x", SECRETS)) == "/renamed"
    assert server.ledger.requests[1].headers["authorization"] == "Bearer secret"


def test_a_redirect_may_be_the_answer(serve: Callable[..., Server]) -> None:
    server = serve(lambda asked: Reply(302, {"Location": "http://storage.invalid/"}))
    service, _ = at(server)
    answer = service.ask("/x", {}, method="HEAD", follow=False)
    assert (answer.status, answer.headers["location"]) == (302, "http://storage.invalid/")


def test_redirects_in_a_circle(serve: Callable[..., Server]) -> None:
    """They are not walked again, either."""
    service, pauses = at(serve(lambda asked: Reply(302, {"Location": "/x"})))
    with pytest.raises(NetworkError, match=r"redirects .*/x without end"):
        service.ask("/x", {})
    assert pauses == []


# ---- Proxies and authorities


def test_a_proxy_is_asked_for_what_it_leads_to(serve: Callable[..., Server]) -> None:
    proxy = serve()
    service = Service("the service", "http://far.invalid", {"HTTP_PROXY": proxy.url})
    assert service.ask("/x", {}).status == 200
    assert proxy.ledger.requests[0].raw == "http://far.invalid/x"


def test_no_proxy_is_honoured(serve: Callable[..., Server]) -> None:
    server = serve()
    service, _ = at(server, http_proxy="http://nowhere.invalid:1", no_proxy="127.0.0.0/8")
    assert names(service.ask("/x", {})) == "/x"


@pytest.mark.parametrize(
    ("url", "environ", "proxy"),
    [
        ("https://h/x", {}, None),
        ("https://h/x", {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ("https://h/x", {"HTTPS_PROXY": "p:1"}, "http://p:1"),
        ("https://h/x", {"HTTPS_PROXY": "http://p:1", "https_proxy": "http://q:1"}, "http://q:1"),
        ("http://h/x", {"HTTPS_PROXY": "http://p:1"}, None),
        ("http://h/x", {"ALL_PROXY": "http://p:1"}, "http://p:1"),
        ("https://h/x", {"HTTPS_PROXY": " "}, None),
        ("https://a.h/x", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "other, h"}, None),
        ("https://ah/x", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "h"}, "http://p:1"),
        ("https://A.H/x", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": ".h"}, None),
        ("https://a.h/x", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*.h"}, None),
        ("https://h:8443/x", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "h:8443"}, None),
        ("https://h:8444/x", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "h:8443"}, "http://p:1"),
        ("https://10.1.2.3/x", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, None),
        ("https://11.1.2.3/x", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, "http://p:1"),
        ("https://[::1]:8/x", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "[::1]:8"}, None),
        ("https://[::1]/x", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "::1"}, None),
        ("https://h/x", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, None),
    ],
)
def test_which_proxy(url: str, environ: dict[str, str], proxy: str | None) -> None:
    assert proxy_for(url, environ) == proxy


@pytest.mark.parametrize("proxy", ["http://[bad", "http://u:pass-word@[bad", "http://h:port", "socks5://h:1", "a b"])
def test_what_cannot_be_a_proxy(proxy: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^HTTPS_PROXY: the proxy .* cannot be used") as raised:
        proxy_for("https://h/x", {"HTTPS_PROXY": proxy})
    assert "pass-word" not in str(raised.value)


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_a_private_authority(serve: Callable[..., Server], tmp_path: Path, name: str) -> None:
    authority = certificate(tmp_path)
    server = serve(tls=(authority.file, authority.key))
    service, pauses = at(server)
    with pytest.raises(NetworkError, match=r"has a certificate that is not trusted here: .*self.signed"):
        service.ask("/x", {})
    assert pauses == []
    trusting, _ = at(server, **{name: str(authority.file)})
    assert names(trusting.ask("/x", {})) == "/x"


@pytest.mark.parametrize("proxy", ["socks5://h:1", "https://h:1", "http://h:x", "http://:80"])
def test_a_proxy_that_cannot_be_used(proxy: str) -> None:
    service = Service("the service", "http://nowhere.invalid", {"http_proxy": proxy}, pause=lambda seconds: None)
    with pytest.raises(ConfigurationError) as raised:
        service.ask("/x", {})
    assert raised.value.what == (
        f"http_proxy: the proxy {proxy} cannot be used: only http://host:port works, for sources with https:// too"
    )
    assert raised.value.todo == "Write http_proxy=http://host:port, or name the source's host in NO_PROXY"


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "ALL_PROXY"])
@pytest.mark.parametrize("proxy", ["socks5://user:pass-word@h:1", "https://h:1"])
@pytest.mark.parametrize(
    ("source", "override"),
    [
        *((source, None) for source in ("hf://o/m", "ngc://o/m:1", "s3://b/m", "gs://b/m", "modelscope://o/m")),
        ("hf://o/m", "https://mirror.example/x"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_refused_for_every_source(
    source: str, override: str | None, proxy: str, variable: str
) -> None:
    environ = {variable: proxy, "HOME": "/nonexistent", "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    with pytest.raises(ConfigurationError) as raised:
        open_remote(parse_source(source, "test"), environ, override).listing()
    assert raised.value.what.startswith(f"{variable}: the proxy {proxy.replace('user:pass-word@', '')} cannot be used")
    assert "only http://host:port works" in raised.value.what
    assert "pass-word" not in str(raised.value)


def test_a_bundle_that_is_not_there(serve: Callable[..., Server], tmp_path: Path) -> None:
    authority = certificate(tmp_path)
    server = serve(tls=(authority.file, authority.key))
    for place, what in ((tmp_path / "none.pem", "does not exist"), (authority.key, "cannot be read as certificates")):
        service, _ = at(server, SSL_CERT_FILE=str(place))
        with pytest.raises(ConfigurationError, match=f"SSL_CERT_FILE: '{place}' {what}"):
            service.ask("/x", {})


@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("", "https://default.example"),
        (" http://h:1/mirror/ ", "http://h:1/mirror"),
        ("mirror.example", "https://mirror.example"),
    ],
)
def test_where_a_service_is(text: str, base: str) -> None:
    assert address({"AT": text}, "AT", "https://default.example") == base


@pytest.mark.parametrize("text", ["ftp://h", "http://", "http://h:port", "http://h:0", "http://[::1", "not a url"])
def test_what_is_no_web_address(text: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        address({"AT": text}, "AT", "https://default.example")
    assert raised.value.what == f"AT: {text!r} is no web address"


def test_a_password_in_an_address_is_refused_and_not_shown() -> None:
    for text in ("https://user:pass-word@h", "https://user:pass-word@h:port"):
        with pytest.raises(ConfigurationError, match="AT") as raised:
            address({"AT": text}, "AT", "https://default.example")
        assert "pass-word" not in str(raised.value)
