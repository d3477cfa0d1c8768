"""Everything that goes wrong between a store and a disk ends in the right bytes or in the documented exit code."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launcher import signals
from launcher.errors import ConfigurationError, DeniedError, IntegrityError, NetworkError, NoSpaceError, NotFoundError
from launcher.fetch import retry
from launcher.fetch.progress import Progress
from launcher.fetch.remote import Digest, RemoteFile
from launcher.fetch.transfer import download
from tests.storage.faults import Fault, Store, serving
from tests.storage.fetching import MIB, OPTIONS, Place, content, described, fetch, job
from tests.storage.loopback import certificate

BIG = content(40 * MIB)
SMALL = content(3000, seed=1)
BIG_FILE = described("big", BIG)
SMALL_FILE = described("small", SMALL)
FEW = 5 * MIB  # bytes that an attempt may cost beyond what it lost: one buffer and what the kernel holds


def told(value: object) -> str | None:
    """A test's name says only what is wrong."""
    if not isinstance(value, Fault):
        return value.__name__ if isinstance(value, type) else None
    wrong = {name: now for name, now in value._asdict().items() if now != Fault._field_defaults[name]}
    return ",".join(f"{name}={now}" for name, now in wrong.items())


@pytest.fixture
def store() -> Iterator[Store]:
    with serving({"big": BIG, "small": SMALL}) as running:
        yield running


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits between attempts that a test can afford; what a server asks for stays."""
    monkeypatch.setattr(retry, "FIRST_WAIT", 0.02)
    monkeypatch.setattr(retry, "PATIENCE", 0.0)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=500),
        Fault(status=503),
        Fault(status=429, headers={"Retry-After": "0"}),
        Fault(status=408),
        Fault(reset_at=1000),
        Fault(cut_at=1000),
        Fault(cut_at=1000, bare=True),
        Fault(cut_at=1000, chunked=True),
        Fault(stall_at=1000),
        Fault(flip_at=100),
        Fault(bare=True),
        Fault(chunked=True),
        Fault(extra=b"more"),
        Fault(extra=b"more", bare=True),
    ],
    ids=told,
)
@pytest.mark.parametrize("file", [BIG_FILE, SMALL_FILE], ids=["big", "small"])
def test_a_fault_that_passes_leaves_no_trace(store: Store, tmp_path: Path, fault: Fault, file: RemoteFile) -> None:
    store.faults = [fault]
    assert fetch(Place(store.url), [file], tmp_path)[file.path] == store.objects[file.path]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(status=500), NetworkError),
        (Fault(status=429), NetworkError),
        (Fault(reset_at=0), NetworkError),
        (Fault(cut_at=0), NetworkError),
        (Fault(stall_at=0), NetworkError),
        (Fault(cut_at=2000, bare=True, no_ranges=True), IntegrityError),
        (Fault(extra=b"more"), IntegrityError),
        (Fault(flip_at=100), IntegrityError),
        (Fault(status=401), DeniedError),
        (Fault(status=403), DeniedError),
        (Fault(status=404), NotFoundError),
        (Fault(status=412), IntegrityError),
        (Fault(status=400), NetworkError),
        (Fault(status=429, headers={"Retry-After": "86400"}), NetworkError),
    ],
    ids=told,
)
def test_a_fault_that_stays_is_the_documented_error(
    store: Store, tmp_path: Path, fault: Fault, error: type[Exception]
) -> None:
    store.faults = [fault._replace(times=1000)]
    with pytest.raises(error):
        fetch(Place(store.url), [SMALL_FILE], tmp_path, OPTIONS._replace(stall=0.3 if fault.stall_at == 0 else 5.0))
    assert len(store.seen) <= 8


def test_attempts_are_bounded(store: Store, tmp_path: Path) -> None:
    store.faults = [Fault(status=500, times=1000)]
    with pytest.raises(NetworkError, match=r"/small answered 500 Internal Server Error for small"):
        fetch(Place(store.url), [SMALL_FILE], tmp_path)
    assert len(store.seen) == 1 + OPTIONS.retries


def test_progress_earns_more_attempts(store: Store, tmp_path: Path) -> None:
    """Ten failures in a row, each after another two megabytes: no reason to give up."""
    store.faults = [Fault(reset_at=place * 2 * MIB) for place in range(1, 11)]
    options = OPTIONS._replace(connections=1)
    assert fetch(Place(store.url), [BIG_FILE], tmp_path, options)["big"] == BIG
    assert store.served < len(BIG) + 10 * FEW


def test_retry_after_is_honoured(store: Store, tmp_path: Path) -> None:
    store.faults = [Fault(status=503, headers={"Retry-After": "1"})]
    began = time.monotonic()
    fetch(Place(store.url), [SMALL_FILE], tmp_path)
    assert time.monotonic() - began >= 1.0


def test_only_the_lost_bytes_are_fetched_again(store: Store, tmp_path: Path) -> None:
    store.faults = [Fault(reset_at=10 * MIB)]
    fetch(Place(store.url), [BIG_FILE], tmp_path)
    assert store.served < len(BIG) + FEW


def test_a_later_process_goes_on(store: Store, tmp_path: Path) -> None:
    store.faults = [Fault(reset_at=10 * MIB), Fault(status=404, times=100)]
    with pytest.raises(NotFoundError):
        fetch(Place(store.url), [BIG_FILE], tmp_path, OPTIONS._replace(connections=1))
    store.faults, before = [], store.served
    assert before >= 9 * MIB
    assert fetch(Place(store.url), [BIG_FILE], tmp_path)["big"] == BIG
    assert store.served - before < len(BIG) - before + FEW


def test_a_finished_part_costs_no_request(store: Store, tmp_path: Path) -> None:
    fetch(Place(store.url), [BIG_FILE, SMALL_FILE], tmp_path)
    asked = len(store.seen)
    assert fetch(Place(store.url), [BIG_FILE, SMALL_FILE], tmp_path) == {"big": BIG, "small": SMALL}
    assert len(store.seen) == asked


def test_a_damaged_part_is_fetched_anew(store: Store, tmp_path: Path) -> None:
    fetch(Place(store.url), [BIG_FILE], tmp_path)
    part = tmp_path / "big.part"
    with part.open("r+b") as file:
        file.seek(MIB)
        file.write(b"damage")
    assert fetch(Place(store.url), [BIG_FILE], tmp_path)["big"] == BIG


def test_a_part_of_another_object_is_not_used(store: Store, tmp_path: Path) -> None:
    fetch(Place(store.url), [BIG_FILE], tmp_path)
    other = content(len(BIG), seed=7)
    store.objects["big"] = other
    assert fetch(Place(store.url), [described("big", other)], tmp_path)["big"] == other


def test_a_server_without_ranges(store: Store, tmp_path: Path) -> None:
    store.faults = [Fault(no_ranges=True, times=1000)]
    assert fetch(Place(store.url), [BIG_FILE], tmp_path)["big"] == BIG


def test_a_server_without_ranges_and_with_resets(store: Store, tmp_path: Path) -> None:
    store.faults = [Fault(no_ranges=True, reset_at=8 * MIB, times=2), Fault(no_ranges=True, times=1000)]
    assert fetch(Place(store.url), [BIG_FILE], tmp_path)["big"] == BIG


def test_a_server_that_gives_less_than_asked_for(store: Store, tmp_path: Path) -> None:
    store.faults = [Fault(short_range=3 * MIB, times=1000)]
    assert fetch(Place(store.url), [BIG_FILE], tmp_path)["big"] == BIG


def test_an_object_that_changed_size(store: Store, tmp_path: Path) -> None:
    store.faults = [Fault(says_size=len(BIG) + 1, times=1000)]
    with pytest.raises(IntegrityError, match="big changed while it was fetched"):
        fetch(Place(store.url), [BIG_FILE], tmp_path)


def test_an_object_that_is_replaced_meanwhile_without_a_digest(store: Store, tmp_path: Path) -> None:
    """The ETag tells: what came before is dropped once, and what keeps changing is an error."""
    file = described("big", BIG, digest=False)
    store.faults = [Fault(etag='"one"', reset_at=8 * MIB), Fault(etag='"two"', times=1000)]
    assert fetch(Place(store.url), [file], tmp_path, OPTIONS._replace(connections=1))["big"] == BIG
    for path in tmp_path.iterdir():
        path.unlink()
    store.faults = [Fault(etag=f'"{number}"') for number in range(100)]
    with pytest.raises(IntegrityError, match="another ETag"):
        fetch(Place(store.url), [file], tmp_path)


def test_without_verification_nothing_is_hashed(store: Store, tmp_path: Path) -> None:
    store.faults = [Fault(flip_at=100)]
    assert fetch(Place(store.url), [SMALL_FILE], tmp_path, OPTIONS._replace(verify="size"))["small"] != SMALL


@pytest.mark.parametrize("algorithm", ["sha1", "md5", "crc32", "crc32c", "crc64nvme"])
def test_every_digest_finds_a_wrong_byte(store: Store, tmp_path: Path, algorithm: str) -> None:
    from launcher.fetch.digests import running

    state = running(Digest(algorithm, ""), len(BIG))
    state.update(memoryview(BIG))
    file = BIG_FILE._replace(digest=Digest(algorithm, state.hexdigest()))
    assert fetch(Place(store.url), [file], tmp_path)["big"] == BIG
    for path in tmp_path.iterdir():
        path.unlink()
    store.faults = [Fault(flip_at=30 * MIB, times=1000)]
    with pytest.raises(IntegrityError, match=f"big has the wrong {algorithm}"):
        fetch(Place(store.url), [file], tmp_path)


def test_credentials_stay_with_their_host(store: Store, tmp_path: Path) -> None:
    with serving({}) as hub:
        hub.redirect = store.url
        place = Place(hub.url, {"Authorization": "Bearer secret", "X-Api-Key": "secret"})
        assert fetch(place, [SMALL_FILE], tmp_path)["small"] == SMALL
        assert [seen.headers["authorization"] for seen in hub.seen] == ["Bearer secret"]
    for seen in store.seen:
        assert "secret" not in str(seen)


def test_credentials_follow_within_their_host(store: Store, tmp_path: Path) -> None:
    store.token = "secret"
    store.faults = [Fault(status=307, headers={"Location": "/sub/../big"})]
    store.objects["sub/../big"] = BIG
    place = Place(store.url, {"Authorization": "Bearer secret"})
    assert fetch(place, [BIG_FILE], tmp_path)["big"] == BIG


def test_redirects_are_bounded(store: Store, tmp_path: Path) -> None:
    store.redirect = store.url
    with pytest.raises(NetworkError, match="redirected more than 5 times"):
        fetch(Place(store.url), [SMALL_FILE], tmp_path)
    assert len(store.seen) == 6


def test_redirects_lead_to_the_web_only(store: Store, tmp_path: Path) -> None:
    store.redirect = "file:///etc/passwd?"
    with pytest.raises(NetworkError, match="no web address"):
        fetch(Place(store.url), [SMALL_FILE], tmp_path)


def test_an_expired_link_is_renewed(store: Store, tmp_path: Path) -> None:
    store.link = "second"
    place = Place(store.url, links=["first", "second"])
    assert fetch(place, [SMALL_FILE], tmp_path)["small"] == SMALL
    assert place.located == 2


def test_links_that_expire_again_and_again_are_renewed(store: Store, tmp_path: Path) -> None:
    place = Place(store.url, links=["1", "2", "3", "4", "5"])
    store.link, store.rate = "1", 10 * MIB
    stopped = threading.Event()

    def expire() -> None:
        for link in ("2", "3", "4", "5"):
            if not stopped.wait(0.4):
                store.link = link

    thread = threading.Thread(target=expire)
    thread.start()
    try:
        assert fetch(place, [BIG_FILE], tmp_path, OPTIONS._replace(connections=4))["big"] == BIG
    finally:
        stopped.set()
        thread.join()


def test_a_link_that_stays_refused_is_denied(store: Store, tmp_path: Path) -> None:
    store.link = "never"
    place = Place(store.url, links=["first", "second", "third"])
    with pytest.raises(DeniedError) as caught:
        fetch(place, [SMALL_FILE], tmp_path)
    assert place.located == 2
    assert "first" not in str(caught.value) and "second" not in str(caught.value)


def test_a_store_may_be_down_for_a_while(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Far more attempts fail than are counted, and still the file arrives."""
    monkeypatch.setattr(retry, "PATIENCE", 30.0)
    monkeypatch.setattr(retry, "LONGEST_WAIT", 0.05)
    store.faults = [Fault(status=500, times=5 * OPTIONS.retries)]
    assert fetch(Place(store.url), [SMALL_FILE], tmp_path)["small"] == SMALL


def test_wrong_content_is_not_waited_for(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "PATIENCE", 1000.0)
    store.faults = [Fault(extra=b"more", times=1000)]
    with pytest.raises(IntegrityError):
        fetch(Place(store.url), [SMALL_FILE], tmp_path)
    assert len(store.seen) == 1 + OPTIONS.retries


def test_a_connection_that_drips_is_given_up(store: Store, tmp_path: Path) -> None:
    store.faults = [Fault(drip_at=2 * MIB)]
    options = OPTIONS._replace(stall=0.3, connections=1)
    assert fetch(Place(store.url), [BIG_FILE], tmp_path, options)["big"] == BIG


def test_a_full_disk_stops_at_once(store: Store, small_disk: Path) -> None:
    with pytest.raises(NoSpaceError, match="no space left"):
        fetch(Place(store.url), [BIG_FILE], small_disk)
    assert store.served < len(BIG) / 2  # what fitted, and what the kernel holds for each connection


def test_a_disk_that_fills_up_stops_at_once(store: Store, small_disk: Path) -> None:
    """Small files are not reserved beforehand."""
    store.objects |= {f"{number}": content(MIB, number) for number in range(12)}
    files = [described(f"{number}", content(MIB, number)) for number in range(12)]
    with pytest.raises(NoSpaceError):
        fetch(Place(store.url), files, small_disk)


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A file system of its own in memory."""
    folder.mkdir()
    if os.getuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]).returncode:
        pytest.skip("mounting a file system takes root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", "size=8m") as folder:
        yield folder


def test_a_folder_that_cannot_be_written(store: Store, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "ro") as folder, pytest.raises(DeniedError, match="cannot be written by uid"):
        fetch(Place(store.url), [SMALL_FILE], folder)


def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match="Connection refused"):
        fetch(Place("http://127.0.0.1:9"), [SMALL_FILE], tmp_path)


def test_no_such_name(tmp_path: Path) -> None:
    with pytest.raises(NetworkError):
        fetch(Place("http://nothing.invalid"), [SMALL_FILE], tmp_path, OPTIONS._replace(retries=1))


def test_an_empty_file_needs_no_request(store: Store, tmp_path: Path) -> None:
    file = described("empty", b"")
    assert fetch(Place("http://127.0.0.1:9"), [file], tmp_path)["empty"] == b""


def test_many_small_files(store: Store, tmp_path: Path) -> None:
    data = {f"{number}": content(number * 37, number) for number in range(300)}
    store.objects |= data
    assert fetch(Place(store.url), [described(path, one) for path, one in data.items()], tmp_path) == data
    assert store.served == sum(map(len, data.values()))


def test_small_files_get_more_connections_where_answers_begin_late(store: Store, tmp_path: Path) -> None:
    data = {f"{number}": content(1000, number) for number in range(400)}
    store.objects |= data
    store.latency = 0.03
    fetch(
        Place(store.url),
        [described(path, one) for path, one in data.items()],
        tmp_path,
        OPTIONS._replace(connections=16),
    )
    assert store.most_at_once > 16


def test_a_limited_connection_gets_company(store: Store, tmp_path: Path) -> None:
    data = content(128 * MIB, 3)
    store.objects["limited"] = data
    store.rate = 8 * MIB
    began = time.monotonic()
    fetch(Place(store.url), [described("limited", data)], tmp_path, OPTIONS._replace(connections=16))
    assert time.monotonic() - began < 128 / 8 / 2
    assert store.most_at_once > 4
    assert store.served < len(data) + FEW


def test_target_and_draft_come_together(store: Store, tmp_path: Path) -> None:
    store.rate = 20 * MIB
    place = Place(store.url)
    store.objects["draft"] = content(20 * MIB, 4)
    jobs = [job(place, BIG_FILE, tmp_path), job(place, described("draft", content(20 * MIB, 4)), tmp_path, "draft")]
    finished: list[str] = []
    download(jobs, OPTIONS, Progress(), lambda one: finished.append(one.label))
    assert sorted(finished) == ["draft", "target"]
    first = [seen.path for seen in store.seen[:4]]
    assert set(first) == {"/big", "/draft"}


def test_the_blamed_label(store: Store, tmp_path: Path) -> None:
    progress = Progress()
    store.faults = [Fault(path="small", status=403, times=100)]
    jobs = [job(Place(store.url), BIG_FILE, tmp_path), job(Place(store.url), SMALL_FILE, tmp_path, "draft")]
    with pytest.raises(DeniedError):
        download(jobs, OPTIONS, progress)
    assert progress.blamed == "draft"


def test_a_signal_ends_everything_within_two_seconds(store: Store, tmp_path: Path) -> None:
    """And what has arrived is kept."""
    store.rate = 4 * MIB
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    signals.install()
    sent: list[float] = []

    def send() -> None:
        time.sleep(1.0)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=send)
    try:
        thread.start()
        with pytest.raises(signals.Stopped) as caught:
            fetch(Place(store.url), [BIG_FILE], tmp_path)
        ended = time.monotonic()
    finally:
        thread.join()
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert caught.value.exit_code == 143
    assert ended - sent[0] < 2.0
    assert not [thread for thread in threading.enumerate() if thread.name in ("fetch", "behind")]
    store.rate, before = 0.0, store.served
    assert before > 2 * MIB
    assert fetch(Place(store.url), [BIG_FILE], tmp_path)["big"] == BIG
    assert store.served < len(BIG) + 2 * FEW


def test_a_private_authority(tmp_path: Path) -> None:
    own = certificate(tmp_path)
    with serving({"small": SMALL, "big": BIG}, tls=(own.file, own.key)) as store:
        with pytest.raises(NetworkError, match="certificate is not trusted"):
            fetch(Place(store.url), [SMALL_FILE], tmp_path)
        for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE"):
            folder = tmp_path / name
            folder.mkdir()
            options = OPTIONS._replace(environ={name: str(own.file)})
            assert fetch(Place(store.url), [SMALL_FILE, BIG_FILE], folder, options) == {"small": SMALL, "big": BIG}


def test_a_missing_authority_is_said_before_anything_is_fetched(store: Store, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="SSL_CERT_FILE"):
        fetch(Place(store.url), [SMALL_FILE], tmp_path, OPTIONS._replace(environ={"SSL_CERT_FILE": "/nowhere.pem"}))
    assert store.seen == []


def test_through_a_proxy(tmp_path: Path) -> None:
    """http is asked of the proxy, https tunnelled through it; NO_PROXY goes straight."""
    own = certificate(tmp_path)
    with serving({"small": SMALL}) as proxy, serving({"small": SMALL}, tls=(own.file, own.key)) as secure:
        through = proxy.url.replace("http://", "http://user:secret@")
        environ = {"HTTP_PROXY": through, "HTTPS_PROXY": through, "SSL_CERT_FILE": str(own.file)}
        options = OPTIONS._replace(environ=environ)
        assert fetch(Place("http://store.invalid"), [SMALL_FILE], tmp_path, options)["small"] == SMALL
        assert proxy.seen[-1].target == "http://store.invalid/small"
        assert proxy.seen[-1].headers["proxy-authorization"] == "Basic dXNlcjpzZWNyZXQ="
        (tmp_path / "small.part").unlink()
        assert fetch(Place(secure.url), [SMALL_FILE], tmp_path, options)["small"] == SMALL
        assert (proxy.seen[-1].method, proxy.seen[-1].target) == ("CONNECT", secure.url.removeprefix("https://"))
        assert "proxy-authorization" not in secure.seen[-1].headers
        count = len(proxy.seen)
        (tmp_path / "small.part").unlink()
        direct = OPTIONS._replace(environ={**environ, "NO_PROXY": "127.0.0.0/8"})
        assert fetch(Place(secure.url), [SMALL_FILE], tmp_path, direct)["small"] == SMALL
        assert len(proxy.seen) == count


def test_a_proxy_that_cannot_be_used(store: Store, tmp_path: Path) -> None:
    options = OPTIONS._replace(environ={"HTTP_PROXY": "socks5://127.0.0.1:9"})
    with pytest.raises(ConfigurationError, match="socks5"):
        fetch(Place(store.url), [SMALL_FILE], tmp_path, options)


def test_memory_does_not_grow_with_the_files(store: Store, tmp_path: Path) -> None:
    assert hashlib.sha256(BIG).hexdigest() == BIG_FILE.identity
    store.rate = 30 * MIB
    import tracemalloc

    tracemalloc.start()
    try:
        fetch_to_disk(store, tmp_path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 40 * MIB


def fetch_to_disk(store: Store, folder: Path) -> None:
    download([job(Place(store.url), BIG_FILE, folder)], OPTIONS, Progress())
