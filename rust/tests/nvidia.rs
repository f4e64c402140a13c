//! No tree of NVIDIA's driver, however broken, crashes a scan, hangs it, or costs a healthy GPU.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it fails")]

mod settings;
mod tree;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use devherd_native::device::Device;
use devherd_native::scan::Scanner;
use devherd_native::settings::Settings;
use proptest::prelude::*;
use serde_json::json;
use tree::Tree;

/// Far longer than any scan of these trees takes, far shorter than a hang.
const HANG: Duration = Duration::from_secs(15);

const HEALTHY: &str = "GPU-00000001";

fn gpu(address: &str, minor: u32) -> String {
    let function = format!("sys/devices/pci0000:00/0000:00:01.0/{address}");
    format!(
        "{function}/uevent = DRIVER=nvidia\n{function}/numa_node = 0\n{function}/config = x\n\
         {function}/power/runtime_status = active\n{function}/driver -> ../../../../bus/pci/drivers/nvidia\n\
         sys/bus/pci/devices/{address} -> ../../../devices/pci0000:00/0000:00:01.0/{address}\n\
         sys/bus/pci/drivers/nvidia/\ndev/nvidia{minor}\n\
         proc/driver/nvidia/capabilities/gpu{minor}/mig/config/\n"
    )
}

fn tree() -> Tree {
    let tree = Tree::new(&(gpu("0000:02:00.0", 0) + &gpu("0000:03:00.0", 1)));
    for (address, minor) in [("0000:02:00.0", 0), ("0000:03:00.0", 1)] {
        let text = format!("Model: \t NVIDIA L4\nGPU UUID: \t GPU-0000000{minor}\nDevice Minor: \t {minor}\n");
        tree.write(&format!("proc/driver/nvidia/gpus/{address}/information"), &text);
    }
    tree.add("proc/driver/nvidia/capabilities/gpu0/mig/gi1/access = DeviceFileMinor: 12");
    tree.add("proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access = DeviceFileMinor: 13");
    tree
}

/// The untouched GPU, under a MIG strategy.
fn healthy(tree: &Tree, mig_strategy: &str) -> Vec<Device> {
    let nvidia = json!({"mig_strategy": mig_strategy, "pass_device_specs": true});
    let changed = settings::json(&json!({"probe_timeout": 20, "vendors": {"nvidia": nvidia}}));
    let settings = Settings::from_json(&changed).unwrap();
    let scan = Scanner::new(tree.host(), &settings).scan(&|| {});
    let mut devices: Vec<Device> =
        scan.devices.iter().filter(|device| device.id == HEALTHY).map(|device| Device::clone(device)).collect();
    for device in &mut devices {
        // An attribute of the driver as a whole.
        device.attributes.remove("excluded_gpus");
    }
    devices
}

fn victims(tree: &Tree) -> Vec<PathBuf> {
    let below = [
        "sys/devices/pci0000:00/0000:00:01.0/0000:02:00.0/uevent",
        "sys/devices/pci0000:00/0000:00:01.0/0000:02:00.0/config",
        "sys/devices/pci0000:00/0000:00:01.0/0000:02:00.0/power/runtime_status",
        "proc/driver/nvidia/gpus/0000:02:00.0/information",
        "proc/driver/nvidia/gpus/0000:02:00.0",
        "proc/driver/nvidia/capabilities/gpu0/mig",
        "proc/driver/nvidia/capabilities/gpu0/mig/gi1",
        "proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0",
        "dev/nvidia0",
    ];
    below.into_iter().map(|path| tree.path(path)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn damage_to_one_gpu_costs_no_other(victim in any::<prop::sample::Index>(), content: Option<Vec<u8>>, text in "[^\0]{0,80}") {
        let tree = tree();
        let before = ["none", "mixed"].map(|strategy| healthy(&tree, strategy));
        prop_assert_eq!(before[0].len(), 1);
        let victims = victims(&tree);
        let victim = victim.get(&victims);
        if victim.is_dir() { fs::remove_dir_all(victim).unwrap() } else { fs::remove_file(victim).unwrap() }
        if let Some(bytes) = content {
            fs::write(victim, if bytes.len() % 2 == 0 { text.into_bytes() } else { bytes }).unwrap();
        }
        let start = Instant::now();
        let mut after = ["none", "mixed"].map(|strategy| healthy(&tree, strategy));
        // A GPU that is no longer listed, or excluded, changes the index of the others, and nothing else of them.
        for (after, before) in after.iter_mut().flatten().zip(before.iter().flatten()) {
            for name in ["index", "gpu_index"] {
                after.attributes.insert(name.to_owned(), before.attributes[name].clone());
            }
            after.distances.clone_from(&before.distances);
        }
        prop_assert_eq!(after, before);
        prop_assert!(start.elapsed() < HANG);
    }
}
