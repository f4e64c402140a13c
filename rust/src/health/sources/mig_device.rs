//! Whether NVIDIA's driver still has the MIG device: nothing reports that one is destroyed, where NVML sends no event.
//!
//! `/proc/driver/nvidia/capabilities/gpu<minor>/mig/gi<g>/ci<c>` exists as long as the MIG device: NVIDIA's MIG user
//! guide, "Device nodes and capabilities". The kernel answers from its own memory; no GPU is asked.

use std::path::PathBuf;

use rustix::io::Errno;

use crate::device::Device;
use crate::health::source::{
    About, Class, Examination, LookContext, Meaning, Observation, Pace, Source, Subject, failed_read,
};
use crate::host::Host;
use crate::host::attribute::Cause;

static ABOUT: About = About {
    name: "mig-device",
    reads: Class::KernelMemory,
    pace: Pace::Each,
    document: "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/",
    meanings: &[Meaning::unhealthy(
        "gone",
        "the driver does not list the MIG device any more",
        "delete the pod that holds it, or make the MIG device anew (nvidia-smi mig -cgi … -C)",
    )
    .undamped()],
};

/// The source.
#[derive(Debug)]
pub(super) struct MigDevice;

impl Source for MigDevice {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn subjects(&self, host: &Host, device: &Device) -> Vec<Subject> {
        let (Some(gpu), Some(compute)) = (device.attributes.get("gpu_instance"), device.text("compute_instance"))
        else {
            return Vec::new();
        };
        let of_gpu = host.absolute(&gpu.source);
        let instance = of_gpu.join(format!("gi{}/ci{compute}", gpu.value));
        vec![Subject::new(host.own_path(&instance).to_string_lossy(), Listed { instance, of_gpu })]
    }
}

#[derive(Debug)]
struct Listed {
    /// The directory of the compute instance.
    instance: PathBuf,
    /// The directory of all instances of the GPU.
    of_gpu: PathBuf,
}

impl Examination for Listed {
    fn look(&mut self, context: LookContext<'_>) -> Observation {
        match rustix::fs::stat(&self.instance) {
            Ok(_) => Observation::Fine,
            // Without the driver no GPU has instances.
            Err(Errno::NOENT) if self.of_gpu.is_dir() => {
                let detail = "the driver does not list this MIG device any more: it was destroyed";
                Observation::Seen(ABOUT.finding("gone").at(context.file).reading("absent").because(detail))
            }
            Err(errno) => failed_read(&Cause::System(errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Tree, device};
    use super::*;

    const OF_GPU: &str = "/proc/driver/nvidia/capabilities/gpu3/mig";

    fn mig_device() -> Device {
        let mut device = device("nvidia", Some("nvidia"));
        device.note("gpu_instance", 7_u32, OF_GPU);
        device.note("compute_instance", 0_u32, OF_GPU);
        device
    }

    #[test]
    fn a_mig_device_that_the_driver_does_not_list_is_gone_until_it_does() {
        let tree = Tree::new();
        let access = format!("{OF_GPU}/gi7/ci0/access");
        tree.write(&access, "DeviceFileMinor: 67\n");
        let mut watching = tree.watch(&MigDevice, &mig_device());
        assert_eq!(watching.observation(), Observation::Fine);
        std::fs::remove_dir_all(tree.path(&format!("{OF_GPU}/gi7"))).unwrap();
        let finding = watching.finding();
        assert_eq!((&*finding.reason, finding.file), ("gone", format!("{OF_GPU}/gi7/ci0")));
        tree.write(&access, "DeviceFileMinor: 67\n");
        assert_eq!(watching.observation(), Observation::Fine);
    }

    /// A compute instance of several in a GPU instance.
    #[test]
    fn a_compute_instance_is_gone_though_its_gpu_instance_stays() {
        let tree = Tree::new();
        tree.write(&format!("{OF_GPU}/gi7/ci1/access"), "DeviceFileMinor: 68\n");
        assert_eq!(tree.watch(&MigDevice, &mig_device()).finding().reason, "gone");
    }

    #[test]
    fn without_the_driver_nothing_is_said_and_of_a_whole_gpu_nothing_is_asked() {
        let tree = Tree::new();
        assert_eq!(tree.watch(&MigDevice, &mig_device()).observation(), Observation::Nothing);
        assert!(tree.watch(&MigDevice, &device("nvidia", Some("nvidia"))).subjects.is_empty());
    }
}
