//! The device nodes that a device needs.

use std::path::Path;

use crate::device::{Device, HostPath};
use crate::health::source::{About, Class, Examination, LookContext, Meaning, Observation, Pace, Source, Subject};
use crate::host::Host;
use crate::host::resolve::{self, Place};

static ABOUT: About = About {
    name: "node",
    reads: Class::Filesystem,
    pace: Pace::Tenth,
    document: "https://www.kernel.org/doc/Documentation/admin-guide/devices.txt",
    meanings: &[Meaning::unhealthy(
        super::scan::NODE_MISSING,
        "a required device node is absent, is no device node, or has another number",
        super::scan::MAKE_NODE,
    )
    .undamped()],
};

/// The source.
#[derive(Debug)]
pub(super) struct Node;

impl Source for Node {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn subjects(&self, _host: &Host, device: &Device) -> Vec<Subject> {
        device.paths.iter().filter(|path| path.is_node && path.is_required).map(subject).collect()
    }
}

fn subject(path: &HostPath) -> Subject {
    let number = path.number;
    Subject::new(&path.path, Expected { number }).variant(number.map(text).unwrap_or_default())
}

fn text((major, minor): (u32, u32)) -> String {
    format!("{major}:{minor}")
}

#[derive(Debug)]
struct Expected {
    number: Option<(u32, u32)>,
}

impl Examination for Expected {
    fn look(&mut self, context: LookContext<'_>) -> Observation {
        let instead = match resolve::node_at(context.host, Path::new(context.file), self.number) {
            Place::Node => return Observation::Fine,
            Place::Hidden(errno) => {
                return Observation::NotLooked(format!("may not look at {}: {errno}", context.file));
            }
            Place::Other(instead) => instead,
        };
        let number = self.number.map(|number| format!(" of number {}", text(number))).unwrap_or_default();
        let detail = format!("a device node{number} is expected here, there is: {instead}");
        Observation::Seen(ABOUT.finding(super::scan::NODE_MISSING).at(context.file).reading(&instead).because(&detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::kept_file::ReadOnce;
    use crate::health::sources::testing::Tree;

    fn device(paths: Vec<HostPath>) -> Device {
        Device { paths, ..Device::default() }
    }

    /// The observation for a required node of the real host.
    fn observation(path: &str, number: Option<(u32, u32)>) -> Observation {
        let subject = subject(&HostPath::node(path, number));
        let (host, reads) = (Host::new("/"), ReadOnce::default());
        let now = std::time::Instant::now();
        let context = LookContext { host: &host, file: &subject.file, stays_open: false, reads: &reads, now };
        let mut examination = subject.examination;
        examination.look(context)
    }

    fn value(observation: Observation) -> String {
        let Observation::Seen(finding) = observation else { return format!("{observation:?}") };
        assert_eq!(finding.reason, "node-missing");
        finding.value
    }

    #[test]
    fn a_node_is_a_device_of_its_number() {
        assert_eq!(observation("/dev/null", None), Observation::Fine);
        assert_eq!(observation("/dev/null", Some((1, 3))), Observation::Fine);
        assert_eq!(value(observation("/dev/null", Some((1, 5)))), "number 1:3");
        assert_eq!(value(observation("/dev/does-not-exist", None)), "absent");
        assert_eq!(value(observation("/dev/null/below", None)), "absent");
        assert_eq!(value(observation("/dev", None)), "a directory");
        assert_eq!(value(observation("/proc/self/stat", None)), "a regular file");
    }

    #[test]
    fn a_missing_node_is_named_with_what_was_expected() {
        let Observation::Seen(finding) = observation("/dev/null", Some((1, 5))) else { panic!("it is the wrong node") };
        let expected = ABOUT.finding("node-missing").at("/dev/null").reading("number 1:3");
        let detail = "a device node of number 1:5 is expected here, there is: number 1:3";
        assert_eq!(finding, expected.because(detail));
    }

    #[test]
    fn only_required_nodes_are_looked_at() {
        let tree = Tree::new();
        let optional = HostPath::node("/dev/optional", None).required(false);
        let device = device(vec![optional, HostPath::file("/run/file").required(true), HostPath::node("/dev/a", None)]);
        let mut watching = tree.watch(&Node, &device);
        assert_eq!(watching.finding().file, "/dev/a");
    }

    #[test]
    fn a_link_is_what_it_leads_to_on_the_host() {
        let tree = Tree::new();
        tree.link("/dev/dangling", "nowhere");
        tree.link("/dev/loop", "loop");
        // Below the root of the tree this is a file of the tree.
        tree.write("/run/node", "");
        tree.link("/dev/away", "/run/node");
        for (name, expected) in
            [("dangling", "a link that leads nowhere"), ("away", "a regular file"), ("absent", "absent")]
        {
            let device = device(vec![HostPath::node(format!("/dev/{name}"), None)]);
            assert_eq!(tree.watch(&Node, &device).finding().value, expected, "{name}");
        }
        let device = device(vec![HostPath::node("/dev/loop", None)]);
        assert!(tree.watch(&Node, &device).finding().value.contains("symbolic links"));
    }

    #[test]
    fn a_node_removed_is_missing_and_back_when_made_again() {
        let mut tree = Tree::new();
        tree.host = Host::simulated(tree.path("/"));
        tree.write("/dev/port", "");
        let device = device(vec![HostPath::node("/dev/port", Some((245, 0)))]);
        let mut watching = tree.watch(&Node, &device);
        assert_eq!(watching.observation(), Observation::Fine);
        tree.remove("/dev/port");
        assert_eq!(watching.finding().value, "absent");
        tree.write("/dev/port", "");
        assert_eq!(watching.observation(), Observation::Fine);
    }
}
