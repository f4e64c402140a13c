"""The sections of resources: a line with counts and registration; unfolded, the devices, those with problems first.

The size of a page is limited; links lead to the omitted resources and devices. page.js loads more devices in place.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from devherd.exporter.status_page.device import Place, Row, device_row, link, timestamp
from devherd.exporter.status_page.html import Html, element, joined
from devherd.exporter.status_page.overview import count, devices
from devherd.exporter.status_page.view import Filter, Holding, View, holdings_of
from devherd.instance.inventory_json import model_of
from devherd.instance.read import InstanceState, is_by_dra
from devherd.inventory import Allocations, key_of
from devherd.proto import spool_pb2
from devherd.spool import ids_of

ROOM_BYTES = 150_000
"""Limit of the HTML of devices, before compression. With everything else the page stays below 300 kB."""
MOST_RESOURCES = 100
MOST_OPEN = 20
"""Limit of the devices with problems that are initially unfolded."""


class _Known:
    """Verdicts, holders and cards of all devices."""

    def __init__(self, herd: InstanceState, allocations: Allocations | None) -> None:
        self.herd = herd
        self.allocations = allocations
        self._verdicts = {(each.vendor, each.card, each.device): each for each in herd.verdicts}
        self._of_cards: dict[tuple[str, str], list[Place]] = {}
        for resource in herd.resources:
            for device in resource.devices:
                if device.card:
                    self._of_cards.setdefault((device.vendor, device.card), []).append((resource.name, device.id))

    def holdings(self, resource: spool_pb2.Offer, device: spool_pb2.Device) -> list[Holding] | None:
        """The allocated ids of a device with their holders; None if unknown."""
        return holdings_of(ids_of(device.id, device.replicas, device.shares), resource.name, self.allocations)

    def row(self, resource: spool_pb2.Offer, device: spool_pb2.Device) -> Row:
        """The row of a device."""
        return Row(
            resource_name=resource.name,
            device=device,
            holdings=self.holdings(resource, device),
            verdict=self._verdicts.get(key_of(device)),
            model=model_of(device.vendor or resource.vendor, device.attributes),
            since=self.herd.since(device),
            of_its_card=self._of_cards.get((device.vendor, device.card), ()),
        )


@dataclass(slots=True)
class _Listing:
    """The devices of a resource that match a view, and the rows of those that fit on the page."""

    resource: spool_pb2.Offer
    devices: Sequence[spool_pb2.Device]
    shown: list[Html] = field(default_factory=list)
    is_open: bool = False
    """True if one of these rows is unfolded."""


def sections(
    herd: InstanceState, allocations: Allocations | None, view: View, rows: set[Place] | None = None
) -> Iterator[Html]:
    """One section per resource, without those in which no device matches the filter, and links to omitted ones.

    The devices that have a row are added to `rows`.
    """
    known = _Known(herd, allocations)
    listings = [_listing(known, resource, Filter(view.filter)) for resource in herd.resources if view.shows(resource)]
    if view.filter:
        listings = [listing for listing in listings if listing.devices]
    part = _part(known, listings, view)
    _fill(known, part, view.start, set() if rows is None else rows)
    for listing in part:
        yield _section(known, listing, view, is_open=view.is_narrowed or len(herd.resources) == 1)
    if len(part) < len(listings):
        yield element("p", *_other_resources(len(part), len(listings), view), class_="rest-of-resources")


def _listing(known: _Known, resource: spool_pb2.Offer, chosen: Filter) -> _Listing:
    if chosen.lets_all_through:
        return _Listing(resource, resource.devices)
    return _Listing(
        resource,
        [each for each in resource.devices if chosen.lets_through(resource, each, known.holdings(resource, each))],
    )


def _part(known: _Known, listings: Sequence[_Listing], view: View) -> Sequence[_Listing]:
    """The listings on this page: by name, or worst first if there are more than MOST_RESOURCES."""
    if len(listings) <= MOST_RESOURCES:
        return listings[view.skip :]
    worst_first = sorted(listings, key=lambda listing: _STYLES.index(_style(known, listing.resource)))
    return worst_first[view.skip : view.skip + MOST_RESOURCES]


def _fill(known: _Known, listings: Sequence[_Listing], start: int, rows: set[Place]) -> None:
    """Add the rows of devices until ROOM_BYTES is used, over all resources: Unhealthy first, then with warnings."""
    queue = sorted(
        ((device, listing) for listing in listings for device in listing.devices),
        key=lambda each: (not each[0].reasons, not each[0].warnings),
    )
    room = ROOM_BYTES
    for number, (device, listing) in enumerate(queue[start:]):
        row = known.row(listing.resource, device)
        is_open = row.style in {"bad", "warn"} and number < MOST_OPEN
        shown = device_row(row, is_open=is_open)
        room -= len(shown)
        if room < 0 and number:
            break
        listing.shown.append(shown)
        rows.add(row.place)
        listing.is_open |= is_open


_STYLES = ("bad", "warn", "good")


def _style(known: _Known, resource: spool_pb2.Offer) -> str:
    """The CSS class for the colour of a resource."""
    counted = count(resource)
    if counted.unhealthy or not (is_by_dra(resource) or known.herd.registration(resource.name).registered):
        return "bad"
    return "warn" if counted.warned else "good"


def _section(known: _Known, listing: _Listing, view: View, *, is_open: bool) -> Html:
    resource = listing.resource
    is_served, served = _served(known.herd, resource)
    line = element(
        "summary",
        element("h3", resource.name),
        element("span", _health_in_short(resource, is_served=is_served), class_="health"),
        element("span", _allocated(resource, known.allocations)),
        element("span", served, class_="good" if is_served else "bad"),
    )
    inside = joined(
        element("p", *_about(known.herd, resource), class_="about-resource"),
        element("ol", *listing.shown, class_="devices", start=str(view.start + 1) if view.start else None),
        element("p", *_rest(listing, view), class_="rest"),
    )
    folded = element("details", line, inside, open=is_open or listing.is_open)
    return element("section", folded, id=resource.name, class_=f"resource {_style(known, resource)}")


def _served(herd: InstanceState, resource: spool_pb2.Offer) -> tuple[bool, str]:
    """Whether pods can get its devices, as far as its registration tells, and the words for it."""
    if is_by_dra(resource):
        return True, "by DRA"
    registration = herd.registration(resource.name)
    is_registered = registration.registered
    return is_registered, "registered" if is_registered else f"not registered: {registration.detail}"


def _health_in_short(resource: spool_pb2.Offer, *, is_served: bool) -> Html:
    counted = count(resource)
    healthy = f"{counted.total - counted.unhealthy - counted.cordoned:,} of {counted.total:,} healthy"
    style = "bad" if counted.unhealthy else "good" if is_served else "off"
    warned = element("span", f", {counted.warned:,} with a warning", class_="warn") if counted.warned else ""
    cordoned = element("span", f", {counted.cordoned:,} cordoned", class_="off") if counted.cordoned else ""
    return joined(element("span", healthy, class_=style), warned, cordoned)


def _allocated(resource: spool_pb2.Offer, allocations: Allocations | None) -> str:
    if allocations is None:
        return "allocated: unknown"
    if not any(name == resource.name for name, _ in allocations):
        return "0 allocated"
    ids = (device_id for device in resource.devices for device_id in ids_of(device.id, device.replicas, device.shares))
    return f"{sum((resource.name, device_id) in allocations for device_id in ids):,} allocated"


def _about(herd: InstanceState, resource: spool_pb2.Offer) -> Iterator[str]:
    yield f"Vendor {resource.vendor}" if resource.vendor else "Vendor unknown"
    child, state = herd.child_of(resource.name), herd.states.get(resource.name)
    if child is not None:
        yield f", process {child.name}: {child.state}"
    if state is not None and state.registered and state.registered_timestamp_seconds:
        yield ", registered since "
        yield timestamp(state.registered_timestamp_seconds)
    yield ". "
    yield link(resource.name, text="Link to this resource")


def _other_resources(shown: int, total: int, view: View) -> Iterator[str]:
    """The range of the shown resources, and links to the others."""
    first, last = view.skip + 1, view.skip + shown
    yield f"Showing resources {first:,} to {last:,} of {total:,}. " if shown else "No more resources. "
    if view.skip:
        yield element("a", "From the first", href=replace(view, skip=0, start=0).query)
        yield " "
    if last < total:
        yield element("a", "Next", href=replace(view, skip=last, start=0).query)


def _rest(listing: _Listing, view: View) -> Iterator[str]:
    shown, total = len(listing.shown), len(listing.devices)
    if shown == total:
        return
    if not view.resource:
        yield f"Showing {shown:,} of {devices(total)}. "
        yield element(
            "a", "Show more", href=replace(view, resource=listing.resource.name, start=0, skip=0).query, class_="grow"
        )
        return
    yield f"Showing devices {view.start + 1:,} to {view.start + shown:,} of {total:,}. " if shown else "No more. "
    if view.start:
        yield element("a", "From the first", href=replace(view, start=0).query)
        yield " "
    if view.start + shown < total:
        yield element("a", "Next", href=replace(view, start=view.start + shown).query)
