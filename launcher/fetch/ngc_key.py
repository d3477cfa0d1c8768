"""Who asks NGC: nobody in particular, a personal key, or a legacy key that is exchanged for short-lived tokens."""

from __future__ import annotations

import base64
import os
import threading
import time
from collections.abc import Mapping
from urllib.parse import quote

from launcher import logs
from launcher.errors import DeniedError, NetworkError
from launcher.fetch.rest import Service, address
from launcher.typing import Any

AUTH = "https://authn.nvidia.com"
KEYS = ("NGC_CLI_API_KEY", "NGC_API_KEY")
_SPARE = 300.0  # seconds before its end at which a token is renewed


def find_access(environ: Mapping[str, str], org: str, team: str) -> Access:
    """The first key of `KEYS`; its scope is NGC_CLI_ORG and NGC_CLI_TEAM, else the model's own."""
    named = next((name for name in KEYS if environ.get(name, "").strip()), "")
    key = environ[named].strip() if named else ""
    own_org = environ.get("NGC_CLI_ORG", "").strip()
    if own_org:
        org, team = own_org, environ.get("NGC_CLI_TEAM", "").strip()
    tokens = Service("NGC's token service", address(environ, "NGC_CLI_AUTH_URL", AUTH), environ)
    return Access(key, named, "" if org == "no-org" else org, "" if team == "no-team" else team, tokens)


class Access:
    """The credentials of all requests for one model.  ``org`` and ``team`` may be ""."""

    def __init__(self, key: str, origin: str, org: str, team: str, tokens: Service) -> None:
        self.is_guest = not key
        self.key = f"key from {origin}"  # as messages call it
        self._key, self._org, self._team = key, org, team
        self._tokens = tokens
        self._guest = os.urandom(16).hex()
        self._token, self._renewal = "", 0.0
        self._lock = threading.Lock()

    def headers(self) -> dict[str, str]:
        """Headers for one request.  Raises DeniedError when the token service refuses the key."""
        named = {"nv-ngc-org": self._org} if self._org else {}
        if self._org and self._team:
            named["nv-ngc-team"] = self._team
        if self.is_guest:
            return {**named, "X-NGC-Guest-Token": _as_uuid(self._guest)}
        return {**named, "Authorization": f"Bearer {self._bearer()}"}

    def forget(self) -> bool:
        """Drop the token, so that the next request brings a new one.  False where no other could be had."""
        with self._lock:
            had, self._token = bool(self._token), ""
        return had

    def refused(self, named: str, said: str) -> DeniedError:
        if self.is_guest:
            return DeniedError(
                f"{named} needs a key, and neither NGC_CLI_API_KEY nor NGC_API_KEY is set{said}",
                "Set NGC_API_KEY to a key of an account that may read it",
            )
        return DeniedError(
            f"NGC does not accept the {self.key} (401 for {named}){said}",
            "Generate a new key at NGC; it may have expired",
        )

    def _bearer(self) -> str:
        if self._key.startswith("nvapi-") or _is_token(self._key):
            return self._key
        with self._lock:
            if not self._token or time.monotonic() > self._renewal:
                self._token, self._renewal = self._exchanged()
            return self._token

    def _exchanged(self) -> tuple[str, float]:
        """A token for the key, and when to renew it (on time.monotonic()).  Each scope is a parameter of its own."""
        scopes = [f"group/ngc:{self._org}"] if self._org else []
        if self._org and self._team:
            scopes.append(f"group/ngc:{self._org}/{self._team}")
        query = "&".join(["service=ngc", *(f"scope={quote(scope, safe='/:')}" for scope in scopes)])
        basic = base64.b64encode(f"$oauthtoken:{self._key}".encode()).decode()
        logs.add_secrets([basic])
        answer = self._tokens.ask(f"/token?{query}", {"Authorization": f"Basic {basic}"})
        if answer.status in (401, 403):
            raise DeniedError(
                f"NGC does not accept the {self.key} ({answer.status} from {answer.url})",
                "Generate a new key at NGC, and check NGC_CLI_ORG and NGC_CLI_TEAM",
            )
        if answer.status != 200:
            raise NetworkError(f"{answer.service} answered {answer.status} to {answer.url}", "Try again later")
        token, life = answer.read(_token_and_life)
        logs.add_secrets([token])
        return token, time.monotonic() + max(life - _SPARE, life / 2) if life > 0 else float("inf")


def _token_and_life(facts: Mapping[str, Any]) -> tuple[str, float]:
    """A token, and for how many seconds it lives (0: the service does not say)."""
    return str(facts["token"]), float(facts.get("expires_in") or 0)


def _is_token(key: str) -> bool:
    """Whether a key is a JSON web token already: three parts of base64."""
    parts = key.split(".")
    return len(parts) == 3 and all(part.replace("-", "").replace("_", "").isalnum() for part in parts)


def _as_uuid(digits: str) -> str:
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
