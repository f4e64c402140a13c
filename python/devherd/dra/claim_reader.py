"""Reads claims from the API server, several at once, and says what may heal of what fails."""

import asyncio
import http
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

from devherd.api_server import NO_ACCESS, Api, ApiError, Json
from devherd.config.resolved import ResolvedConfig
from devherd.dra.claim import ClaimError, ClaimOfPod, ForbiddenError, NotYetError

_CALLS_AT_ONCE = 8
_HEALING = (0, http.HTTPStatus.OK, http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.REQUEST_TIMEOUT, 429)
"""Statuses after which a call is tried again, beside 5xx; 0: no answer, 200: no object."""


class ClaimReader:
    """Reads by a few connections, which are kept. Each call asks the server, whatever became of others."""

    def __init__(self, config: ResolvedConfig, call_seconds: float) -> None:
        self._config = config
        self._seconds = call_seconds
        self._threads = ThreadPoolExecutor(_CALLS_AT_ONCE, "claims")
        self._lock = threading.Lock()
        self._idle: list[Api] = []

    async def get(self, claim: ClaimOfPod, pause: float, *, is_of_a_pod_here: bool = True) -> Json | None:
        """The claim of this namespace and name, whatever its uid; None if there is none.

        None as well if it may be of no pod here, and the API server refuses it: so it does to a kubelet's credential.

        Raises NotYetError, with `pause` where the server does not ask for more, ForbiddenError and other ClaimErrors.
        """
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._got, claim)
        except ApiError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                return None
            if error.status == http.HTTPStatus.FORBIDDEN and not is_of_a_pod_here:
                return None
            raise _failure(claim, error, pause) from None
        except RuntimeError as error:  # Python's for a thread that cannot be started
            raise NotYetError(f"there is no thread to ask the API server: {error}", pause) from None

    def close(self) -> None:
        """Close the connections that are not in use, and end the threads after their calls."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            for api in self._idle:
                api.close()
            self._idle.clear()

    def _got(self, claim: ClaimOfPod) -> Json:
        with self._lock:
            api = self._idle.pop() if self._idle else None
        if api is None:
            access = self._config.api_access()
            if access is None:
                raise NO_ACCESS
            api = Api(access, seconds=self._seconds, remembers_outages=False)
        namespace, name = quote(claim.namespace, safe=""), quote(claim.name, safe="")
        try:
            return api.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}")
        finally:
            with self._lock:
                self._idle.append(api)


def _failure(claim: ClaimOfPod, error: ApiError, pause: float) -> Exception:
    """What becomes of a failed call."""
    what = f"{claim} cannot be read"
    if error is NO_ACCESS:
        return ClaimError(what, str(error), "run devherd in a pod with a service account, or name a `kubeconfig`")
    if error.status == http.HTTPStatus.FORBIDDEN:
        lacking = f"devherd lacks the right to `get` `resourceclaims` of `resource.k8s.io` ({error})"
        return ForbiddenError(what, lacking, "grant it")
    if error.status in _HEALING or error.status >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
        return NotYetError(f"{what} from the API server: {error}", max(pause, error.retry_after_seconds or 0))
    return ClaimError(what, f"the API server refuses it: {error}", "see the API server's log")
