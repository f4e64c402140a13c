"""`devherd dra withdraw`: takes this node's ResourceSlices back."""

import argparse
import contextlib
import sys

from devherd.api_server import Api, ApiError, Json
from devherd.cli.instance import reaching_settings, require_running
from devherd.cli.options import load_config
from devherd.config.resolved import ResolvedFileError, read_resolved
from devherd.dra.pool_files import node_name
from devherd.errors import AlreadyRunningError, ExitCode, UnreachableError
from devherd.kubernetes.slice_watch import SLICES, is_devherds, read_slices
from devherd.kubernetes.slices import CURES
from devherd.settings import Settings


def add_withdraw_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's own options."""
    parser.add_argument(
        "--driver", metavar="NAME", action="append", default=[], help="those of this driver alone; may be repeated"
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be removed, and change nothing")


def run_withdraw(arguments: argparse.Namespace) -> int:
    """Remove the ResourceSlices that devherd has written for this node: no more pods get its devices by DRA.

    Do this when you uninstall devherd, or go back to device plugins, after it has ended: an instance that publishes
    writes them again at once, so the command refuses while one runs. Pods keep their devices; slices of other programs
    stay. It runs with --kubeconfig or in a pod, by an account that may list and delete resourceslices. Where nobody
    serves a driver, the kubelet removes its slices by itself, after half a minute.
    """
    from devherd.config.loader import resolve

    settings = reaching_settings(arguments)
    node = node_name()
    if not arguments.dry_run:
        _refuse_while_published(settings)
    access = resolve(load_config(arguments)).api_access()
    if access is None:
        raise UnreachableError(
            "cannot withdraw the slices",
            "there is no API server to talk to: no `kubeconfig` is named or there, and this is no pod with a token",
            "give --kubeconfig, such as /etc/kubernetes/kubelet.conf",
        )
    with contextlib.closing(Api(access)) as api:
        try:
            found = [each for each in read_slices(api, f"spec.nodeName={node}")[0] if is_devherds(each)]
        except ApiError as error:
            raise UnreachableError("cannot read the slices", str(error), _cure(error)) from error
        chosen = [each for each in found if not arguments.driver or each["spec"].get("driver") in arguments.driver]
        if not chosen:
            of = f" of {', '.join(arguments.driver)}" if arguments.driver else ""
            print(f"{node} has no slices{of} that devherd has written")
        codes = [_remove(api, each, is_tried=arguments.dry_run) for each in chosen]
    return max(codes, default=ExitCode.DONE)


def _refuse_while_published(settings: Settings) -> None:
    """Raises AlreadyRunningError if an instance publishes slices, UnreachableError if that cannot be known."""
    try:
        require_running(settings)
        config = read_resolved(settings.resolved_config_file)
    except ResolvedFileError:
        return
    except UnreachableError as error:
        if isinstance(error.__cause__, PermissionError):
            raise
        return
    if config.is_dra:
        raise AlreadyRunningError(
            "cannot withdraw the slices",
            f"the instance in {settings.run_dir} publishes them, and would write them again at once",
            "end it first",
        )


def _remove(api: Api, slice_: Json, *, is_tried: bool) -> ExitCode:
    name = slice_["metadata"]["name"]
    try:
        if not is_tried:
            api.delete(f"{SLICES}/{name}", uid=slice_["metadata"]["uid"])
    except ApiError as error:
        print(f"devherd: cannot remove slice {name} — {error} — {_cure(error)}", file=sys.stderr)
        return ExitCode.PROBLEM_FOUND
    print(f"{name}: {'would be ' * is_tried}removed")
    return ExitCode.DONE


def _cure(error: ApiError) -> str:
    return CURES.get(error.status, "try again")
