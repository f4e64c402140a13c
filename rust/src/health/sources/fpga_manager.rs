//! Whether an Intel FPGA is being programmed, or programming has failed, by the state of the kernel's FPGA manager.
//!
//! <https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-class-fpga-manager>, `state`

use std::path::{Path, PathBuf};

use super::scan::UNPROGRAMMED;
use crate::device::Device;
use crate::health::kept_file::KeptFile;
use crate::health::source::{
    About, Class, Examination, LookContext, Meaning, Observation, Source, Subject, failed_read,
};
use crate::host::Host;
use crate::host::attribute::trimmed;
use crate::host::directory::Directory;

static ABOUT: About = About {
    name: "fpga-manager",
    reads: Class::KernelMemory,
    document: "https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-class-fpga-manager",
    meanings: &[Meaning::unhealthy(
        UNPROGRAMMED,
        "the FPGA manager's state is a step of programming, or an error of one: neither `operating` nor `unknown`",
    )
    .undamped()],
};

/// The source.
#[derive(Debug)]
pub(super) struct FpgaManager;

impl Source for FpgaManager {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn subjects(&self, host: &Host, device: &Device) -> Vec<Subject> {
        if device.vendor != "intel-fpga" {
            return Vec::new();
        }
        let functions = device.functions.iter().map(|function| host.absolute(&function.path));
        let subject = |manager: PathBuf| {
            let file = manager.join("state");
            Subject::new(host.own_path(&file).to_string_lossy(), State { file: KeptFile::new(file) })
        };
        functions.flat_map(|function| managers(&function)).map(subject).collect()
    }
}

/// The managers of a function: `fpga_region/region0/dfl-fme.0/dfl-fme-mgr.0/fpga_manager/fpga0`.
fn managers(function: &Path) -> Vec<PathBuf> {
    let regions = below(&function.join("fpga_region"), "region");
    let engines = regions.iter().flat_map(|region| below(region, "dfl-fme."));
    let managers = engines.flat_map(|engine| below(&engine, "dfl-fme-mgr."));
    managers.flat_map(|manager| below(&manager.join("fpga_manager"), "fpga")).collect()
}

/// The entries of a directory with this prefix; none if the directory does not exist.
fn below(directory: &Path, prefix: &str) -> Vec<PathBuf> {
    let names = Directory::open(directory).and_then(|open| open.names()).unwrap_or_default();
    names.into_iter().filter(|name| name.starts_with(prefix)).map(|name| directory.join(name)).collect()
}

#[derive(Debug)]
struct State {
    file: KeptFile,
}

impl Examination for State {
    fn look(&mut self, context: LookContext<'_>) -> Observation {
        let text = match self.file.read(context.keeping) {
            Ok((text, _)) => text,
            Err(cause) => return failed_read(&cause),
        };
        let detail = match trimmed(&text) {
            // `unknown`: not programmed since the driver was loaded.
            "operating" | "unknown" | "" => return Observation::Fine,
            state if state.ends_with("error") => {
                "programming has failed: what is loaded is undefined; program it again"
            }
            _ => "the FPGA is being programmed",
        };
        Observation::Seen(ABOUT.finding(UNPROGRAMMED).at(context.file).reading(trimmed(&text)).because(detail))
    }

    fn most_open(&self) -> u64 {
        1
    }

    fn close(&mut self) {
        self.file.close();
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{FUNCTION, Tree, device};
    use super::*;

    fn state() -> String {
        format!("{FUNCTION}/fpga_region/region0/dfl-fme.0/dfl-fme-mgr.0/fpga_manager/fpga0/state")
    }

    #[test]
    fn an_fpga_that_is_being_programmed_or_was_left_half_programmed_is_unprogrammed() {
        let tree = Tree::new();
        tree.write(&state(), "unknown\n");
        let mut watching = tree.watch(&FpgaManager, &device("intel-fpga", Some("dfl-pci")));
        assert_eq!(watching.observation(), Observation::Fine);
        for (text, is_well) in
            [("write init\n", false), ("write\n", false), ("write complete error\n", false), ("operating\n", true)]
        {
            tree.write(&state(), text);
            match watching.observation() {
                Observation::Seen(finding) => {
                    assert_eq!((&*finding.reason, finding.file, is_well), ("unprogrammed", state(), false));
                }
                observation => assert_eq!((observation, is_well), (Observation::Fine, true), "{text}"),
            }
        }
        tree.remove(&state());
        assert_eq!(watching.observation(), Observation::Nothing);
    }

    #[test]
    fn a_function_without_a_manager_and_a_device_of_another_vendor_are_not_looked_at() {
        let tree = Tree::new();
        assert!(tree.watch(&FpgaManager, &device("intel-fpga", Some("dfl-pci"))).subjects.is_empty());
        tree.write(&state(), "write error\n");
        assert!(tree.watch(&FpgaManager, &device("amd", Some("amdgpu"))).subjects.is_empty());
    }
}
