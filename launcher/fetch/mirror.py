"""A mirror over http or https: a manifest, as ``create-model-store --mirror`` writes it, and the files beside it."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from launcher.cache.manifest import Newer, from_json
from launcher.cache.snapshots import pinned_revision
from launcher.errors import ConfigurationError, DeniedError, IntegrityError, LauncherError, NetworkError, NotFoundError
from launcher.fetch.names import checked
from launcher.fetch.override import MANIFEST, VARIABLE
from launcher.fetch.remote import Listing, Location, RemoteFile
from launcher.fetch.rest import Answer, Service
from launcher.sources import ModelSource


class HttpMirror:
    """``source`` as a mirror at ``url`` has it."""

    def __init__(self, source: ModelSource, url: str, environ: Mapping[str, str]) -> None:
        scheme, _, rest = url.partition("://")
        self.base = f"{scheme}://{quote(rest, safe='/:@[]')}"
        self._source = source
        self._service = Service(f"the mirror of {VARIABLE}", self.base, environ)

    def listing(self) -> Listing:
        """The mirror's manifest.

        Raises NotFoundError where there is none, IntegrityError for one of another source or revision.
        """
        answer = self._service.ask(f"/{MANIFEST}", {})
        if answer.status != 200:
            raise self._refusal(answer)
        try:
            manifest = from_json(answer.body)
        except ValueError as error:
            raise IntegrityError(f"{answer.url}: {error}", "Write it with create-model-store --mirror") from None
        if isinstance(manifest, Newer):
            raise ConfigurationError(
                f"{answer.url} has format {manifest.format}, which is newer than this launcher", "Use a newer launcher"
            )
        canonical = f"{self._source.scheme}://{self._source.name}"
        pinned = pinned_revision(self._source.scheme, self._source.revision)
        if manifest.source != canonical or (pinned is not None and manifest.revision != pinned):
            raise IntegrityError(
                f"{answer.url} is of {manifest.source} at revision {manifest.revision}, not of {self._source.text}",
                "Write the mirror's folder with create-model-store --mirror",
            )
        return Listing(canonical, manifest.revision, pinned is not None, checked(manifest.files, self.base))

    def locate(self, file: RemoteFile) -> Location:
        return Location(f"{self.base}/{quote(file.path)}")

    def _refusal(self, answer: Answer) -> LauncherError:
        if answer.status in (404, 410):
            return NotFoundError(
                f"{self._source.text} is not on {self._service.name}: {answer.url} does not exist",
                "Put it there with create-model-store --mirror",
            )
        if answer.status in (401, 403):
            return DeniedError(f"{self._service.name} refuses {answer.url} ({answer.status})", "Check its access rules")
        return NetworkError(f"{self._service.name} answered {answer.status} to {answer.url}", "Check its address")
