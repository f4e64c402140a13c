//! Whether NVIDIA's fabric manager runs on a host with switches of NVLink and GPUs that need it to start any CUDA program.
//!
//! Since Hopper, GPUs register with their fabric, and NVML reports whether they have. Volta and Ampere do not: without
//! the fabric manager a new program ends with `cudaErrorSystemNotReady` (802), see `ABORT_CUDA_JOBS_ON_FM_EXIT` in
//! NVIDIA's guide. A host has switches if their driver has made its directory (`procfs_nvswitch.c`); NVIDIA's driver
//! container decides in the same way.

use std::ops::RangeInclusive;

use crate::device::Device;
use crate::health::source::{
    About, Class, Examination, LookContext, Meaning, Observation, Pace, Source, Subject, failed_read,
};
use crate::host::Host;
use crate::host::attribute::hexadecimal;
use crate::host::directory::{Directory, is_numbered};

/// A directory for each NVSwitch that the driver serves, by PCI address.
const SWITCHES: &str = "/proc/driver/nvidia-nvswitch/devices";
/// `nv-fabricmanager`, as the kernel cuts it: `TASK_COMM_LEN`.
const NAME: &str = "nv-fabricmanage";
/// The kernel's second process. In another PID namespace no process has this name.
const KERNEL_THREADS: (&str, &str) = ("2/comm", "kthreadd");
/// PCI devices with the chips GV100 and GA100, and no others, by Debian's pci.ids 0.0~2023.04.11 (vendor 10de).
const NEED_IT: [RangeInclusive<u64>; 2] = [0x1d80..=0x1dff, 0x2080..=0x20ff];

const FABRIC: &str = "fabric";

static ABOUT: About = About {
    name: "fabric-manager",
    reads: Class::KernelMemory,
    pace: Pace::Tenth,
    document: "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/",
    meanings: &[Meaning::unhealthy(
        FABRIC,
        "the host has NVSwitches, the GPU is an A100 or V100 that is not in MIG mode, and no fabric manager runs",
        "start the fabric manager (systemctl start nvidia-fabricmanager)",
    )
    .after(30)],
};

/// The source.
#[derive(Debug)]
pub(super) struct FabricManager;

impl Source for FabricManager {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn subjects(&self, _host: &Host, device: &Device) -> Vec<Subject> {
        if needs_it(device) { vec![Subject::new(SWITCHES, Running::default())] } else { Vec::new() }
    }
}

/// Whether it is a whole GPU under NVIDIA's driver that cannot be used in a fabric without its manager. MIG devices use
/// no NVLinks.
fn needs_it(device: &Device) -> bool {
    let number = || hexadecimal(&device.text("device_id")?);
    device.vendor == "nvidia"
        && device.functions.iter().any(|function| function.driver.as_deref() == Some("nvidia"))
        && number().is_some_and(|number| NEED_IT.iter().any(|chip| chip.contains(&number)))
        && device.text("mig_mode").as_deref() != Some("enabled")
        && device.text("gpu_instance").is_none()
}

#[derive(Debug, Default)]
struct Running {
    /// The fabric manager's process at the last look; other processes are read only when it has ended.
    process: Option<String>,
}

impl Examination for Running {
    fn look(&mut self, context: LookContext<'_>) -> Observation {
        let switches = Directory::open(context.host.absolute(context.file)).and_then(|directory| directory.names());
        match switches {
            Ok(names) if names.is_empty() => return Observation::Nothing,
            Ok(_) => {}
            Err(error) => return failed_read(&error.cause),
        }
        let processes = match Directory::open(context.host.proc("")) {
            Ok(processes) => processes,
            Err(error) => return Observation::NotLooked(format!("/proc: {}", error.cause)),
        };
        let (second, name) = KERNEL_THREADS;
        match processes.attribute(second) {
            Ok(comm) if comm.text() == name => {}
            Ok(_) => return Observation::Nothing, // a container without the host's processes
            Err(error) => return failed_read(&error.cause),
        }
        if self.process.as_deref().is_some_and(|process| is_it(&processes, process)) {
            return Observation::Fine;
        }
        let names = match processes.names() {
            Ok(names) => names,
            Err(error) => return Observation::NotLooked(format!("/proc: {}", error.cause)),
        };
        self.process = names.into_iter().find(|name| is_numbered(name, "") && is_it(&processes, name));
        if self.process.is_some() {
            return Observation::Fine;
        }
        let detail = "NVIDIA's fabric manager does not run on this host, and without it CUDA programs end with error 802 \
            (system not yet initialized): start the service nvidia-fabricmanager, in the driver's version";
        Observation::Seen(ABOUT.finding(FABRIC).at(context.file).reading("absent").because(detail))
    }
}

/// Whether this process is the fabric manager and has not ended: a zombie keeps its name.
fn is_it(processes: &Directory, process: &str) -> bool {
    is_named(processes, &format!("{process}/comm"), NAME)
        && !processes
            .attribute(&format!("{process}/stat"))
            .is_ok_and(|stat| stat.text().rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" Z")))
}

fn is_named(processes: &Directory, file: &str, name: &str) -> bool {
    processes.attribute(file).is_ok_and(|comm| comm.text() == name)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Tree, Watching, device};
    use super::*;

    const A100: &str = "0x20b0";

    fn gpu(device_id: &str) -> Device {
        let mut gpu = device("nvidia", Some("nvidia"));
        gpu.note("device_id", device_id, "/sys/x/device");
        gpu
    }

    /// A host with these switches, whose processes are shown, with or without the fabric manager.
    fn host(switches: &[&str], process: Option<&str>) -> Tree {
        let tree = Tree::new();
        for switch in switches {
            tree.write(&format!("{SWITCHES}/{switch}/information"), "");
        }
        tree.write("/proc/1/comm", "systemd\n");
        tree.write("/proc/2/comm", "kthreadd\n");
        tree.write("/proc/uptime", "1.0 1.0\n");
        if let Some(process) = process {
            start(&tree, process);
        }
        tree
    }

    fn start(tree: &Tree, process: &str) {
        tree.write(&format!("/proc/{process}/comm"), "nv-fabricmanage\n");
        tree.write(&format!("/proc/{process}/stat"), format!("{process} (nv-fabricmanage) S 1 {process}"));
    }

    fn end(tree: &Tree, process: &str) {
        for file in ["comm", "stat"] {
            tree.remove(&format!("/proc/{process}/{file}"));
        }
    }

    fn is_seen(watching: &mut Watching<'_>) -> bool {
        matches!(watching.observation(), Observation::Seen(_))
    }

    #[test]
    fn a_fabric_manager_that_ends_is_a_finding_until_another_process_is_it() {
        let tree = host(&["0000:c1:00.0"], Some("2939"));
        let mut watching = tree.watch(&FabricManager, &gpu(A100));
        assert_eq!(watching.observation(), Observation::Fine);
        end(&tree, "2939");
        let finding = watching.finding();
        assert_eq!((&*finding.source, &*finding.reason), ("fabric-manager", "fabric"));
        assert_eq!((&*finding.file, &*finding.value), (SWITCHES, "absent"));
        assert!(finding.detail.contains("start the service nvidia-fabricmanager"), "{}", finding.detail);
        start(&tree, "77");
        assert_eq!(watching.observation(), Observation::Fine);
    }

    #[test]
    fn the_number_of_the_fabric_manager_in_the_hands_of_another_process_is_not_the_fabric_manager() {
        let tree = host(&["0000:c1:00.0"], Some("2939"));
        let mut watching = tree.watch(&FabricManager, &gpu(A100));
        assert_eq!(watching.observation(), Observation::Fine);
        tree.write("/proc/2939/comm", "sleep\n");
        assert!(is_seen(&mut watching));
    }

    #[test]
    fn a_fabric_manager_that_has_ended_and_that_nobody_waited_for_does_not_run() {
        let tree = host(&["0000:c1:00.0"], Some("2939"));
        tree.write("/proc/2939/stat", "2939 (nv-fabricmanage) Z 1 2939");
        assert!(is_seen(&mut tree.watch(&FabricManager, &gpu(A100))));
    }

    #[test]
    fn a_host_without_switches_needs_no_fabric_manager() {
        for switches in [None, Some(())] {
            let tree = host(&[], None);
            if switches.is_some() {
                std::fs::create_dir_all(tree.path(SWITCHES)).unwrap();
            }
            assert_eq!(tree.watch(&FabricManager, &gpu(A100)).observation(), Observation::Nothing, "{switches:?}");
        }
    }

    #[test]
    fn a_container_that_does_not_see_the_host_s_processes_says_nothing() {
        let tree = host(&["0000:c1:00.0"], None);
        for second in [Some("sleep\n"), None] {
            match second {
                Some(name) => tree.write("/proc/2/comm", name),
                None => tree.remove("/proc/2/comm"),
            }
            assert_eq!(tree.watch(&FabricManager, &gpu(A100)).observation(), Observation::Nothing, "{second:?}");
        }
    }

    #[test]
    fn only_whole_a100_and_v100_under_nvidia_s_driver_need_it() {
        let tree = host(&["0000:c1:00.0"], None);
        let watched = |device: &Device| !tree.watch(&FabricManager, device).subjects.is_empty();
        for (id, is_watched) in [
            (A100, true),      // A100-SXM4-40GB
            ("0x20b2", true),  // A100-SXM4-80GB
            ("0x20f3", true),  // A800-SXM4-80GB
            ("0x1db8", true),  // V100-SXM3-32GB
            ("0x1eb8", false), // T4
            ("0x2204", false), // GeForce RTX 3090
            ("0x2330", false), // H100 SXM5 80GB
            ("0x2901", false), // B200
            ("nonsense", false),
        ] {
            assert_eq!(watched(&gpu(id)), is_watched, "{id}");
        }
        for (name, value) in [("mig_mode", "enabled"), ("gpu_instance", "3")] {
            let mut in_mig_mode = gpu(A100);
            in_mig_mode.note(name, value, "/proc/x");
            assert!(!watched(&in_mig_mode), "{name}");
        }
        let mut whole = gpu(A100);
        whole.note("mig_mode", "disabled", "/proc/x");
        assert!(watched(&whole));
        for driver in [Some("vfio-pci"), None] {
            let other = Device { attributes: gpu(A100).attributes, ..device("nvidia", driver) };
            assert!(!watched(&other), "{driver:?}");
        }
    }
}
