"""Whatever the kernel log says of resets: what its driver got back is well, what hangs or failed is Unhealthy."""

from hypothesis import example, given
from hypothesis import strategies as st

from devherd._native import Device, Fact, KernelLogEvent
from devherd.health.held import Now, Seen
from devherd.health.kernel_log import KernelLogSource
from devherd.health.policy import FINE, Policy, Verdict
from devherd.inventory import Entry
from devherd.reasons.kernel_log_rules import in_force

ADDRESS = "0000:03:00.0"
KEY = ("amd", ADDRESS, "it")
RULES = in_force((), ())
BEGUN, SUCCEEDED, FAILED = "amdgpu-reset-begun", "amdgpu-reset-succeeded", "amdgpu-reset-failed"
HUNG = Verdict(("gpu-reset",))


def entry() -> Entry:
    facts = {"pci_address": Fact("text", ADDRESS, "/sys")}
    return Entry(Device(vendor=KEY[0], card=KEY[1], id=KEY[2], facts=facts), "example.com/it")


def event(rule: str, second: float) -> KernelLogEvent:
    return KernelLogEvent(
        rule=rule,
        pci_address=ADDRESS,
        uuid="",
        gpu_instance=None,
        compute_instance=None,
        link=None,
        xid="",
        value="",
        text=rule,
        monotonic=second,
        times=1,
    )


def at(second: float) -> Now:
    return Now(1_000_000.0 + second, second, "boot-1")


PRINTED = st.lists(
    st.tuples(st.sampled_from([BEGUN, SUCCEEDED, FAILED]), st.integers(min_value=1, max_value=90)),
    min_size=1,
    max_size=8,
)


@given(PRINTED, st.booleans())
@example(printed=[(FAILED, 1), (SUCCEEDED, 1)] * 3, is_late=False)
def test_the_last_word_on_a_reset_decides_whenever_it_is_read(printed: list[tuple[str, int]], is_late: bool) -> None:
    """As it is printed, or all at once by a scanner that starts late; a minute after it, the verdict is the same."""
    policy, source, known, second = Policy(1), KernelLogSource(), [entry()], 0.0
    policy.use(1, damps=False)  # what fails three times in an hour is held longer
    events = []
    for rule, gap in printed:
        second += gap
        events.append(event(rule, second))
        if not is_late:
            policy.note(source.match(events[-1:], RULES, known, 1).seen, at(second))
            policy.observe(Seen(), at(second))
            assert policy.verdict(KEY) == FINE or rule != SUCCEEDED
    end = at(second + 61)
    if is_late:
        policy.note(source.match(events, RULES, known, 1).seen, end)
    policy.observe(Seen(), end)
    last = printed[-1][0]
    assert (policy.verdict(KEY).reasons == HUNG.reasons) == (last != SUCCEEDED)
