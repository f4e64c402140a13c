//! Other paths that a device needs: mounted files, directories and sockets.

use rustix::io::Errno;

use crate::device::Device;
use crate::health::source::{About, Class, Examination, LookContext, Meaning, Observation, Pace, Source, Subject};
use crate::host::Host;
use crate::host::resolve::followed;

static ABOUT: About = About {
    name: "path",
    reads: Class::Filesystem,
    pace: Pace::Tenth,
    document: "README.md, generic",
    meanings: &[Meaning::unhealthy(
        super::scan::NODE_MISSING,
        "a required file, directory or socket is absent",
        "put [{file}|the path] back, or start the program that makes it",
    )],
};

/// The source.
#[derive(Debug)]
pub(super) struct Path;

impl Source for Path {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn subjects(&self, _host: &Host, device: &Device) -> Vec<Subject> {
        let required = device.paths.iter().filter(|path| !path.is_node && path.is_required);
        required.map(|path| Subject::new(&path.path, Expected)).collect()
    }
}

#[derive(Debug)]
struct Expected;

impl Examination for Expected {
    fn look(&mut self, context: LookContext<'_>) -> Observation {
        match rustix::fs::stat(followed(context.host, std::path::Path::new(context.file))) {
            Ok(_) => Observation::Fine,
            Err(errno @ (Errno::ACCESS | Errno::PERM)) => {
                Observation::NotLooked(format!("may not look at {}: {errno}", context.file))
            }
            Err(errno) => {
                let detail = format!("a file, directory or socket is expected here: {errno}");
                Observation::Seen(
                    ABOUT.finding(super::scan::NODE_MISSING).at(context.file).reading("absent").because(&detail),
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Tree;
    use super::*;
    use crate::device::HostPath;

    #[test]
    fn any_kind_of_path_is_there_or_not() {
        let tree = Tree::new();
        tree.write("/run/directory/file", "");
        tree.link("/run/link", "/run/directory");
        tree.link("/run/dangling", "/run/nowhere");
        let required = |path: &str| HostPath::file(path).required(true);
        for (path, is_missing) in [
            ("/run/directory", false),
            ("/run/directory/file", false),
            ("/run/link/file", false),
            ("/run/dangling", true),
            ("/run/missing", true),
            ("/run/directory/file/below", true),
        ] {
            let device = Device { paths: vec![required(path)], ..Device::default() };
            let observation = tree.watch(&Path, &device).observation();
            assert_eq!(matches!(observation, Observation::Seen(_)), is_missing, "{path} {observation:?}");
        }
        let device = Device { paths: vec![required("/run/missing")], ..Device::default() };
        let finding = tree.watch(&Path, &device).finding();
        assert_eq!((&*finding.reason, &*finding.file, &*finding.value), ("node-missing", "/run/missing", "absent"));
    }

    #[test]
    fn what_is_a_node_or_not_required_is_not_looked_at() {
        let paths = vec![HostPath::node("/dev/a", None), HostPath::file("/run/b")];
        let device = Device { paths, ..Device::default() };
        assert!(Tree::new().watch(&Path, &device).subjects.is_empty());
    }
}
