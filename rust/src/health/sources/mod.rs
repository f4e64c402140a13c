//! The registry of sources: one file and one line each.

mod amd_ras;
pub mod class_health;
pub mod device_dump;
mod fabric_manager;
pub mod fpga_errors;
pub mod fpga_manager;
pub mod fpga_power;
mod mig_device;
mod node;
mod path;
mod pci_aer;
mod pci_config;
mod pci_driver;
mod pci_link;
mod pci_power;
mod rdma_errors;
mod rdma_link;
mod rdma_port;
mod rdma_rate;
pub mod scan;
pub mod temperature;
#[cfg(test)]
pub(super) mod testing;
mod xe_health;

pub use pci_config::answers;
pub(super) use pci_config::{CHECK_CARD, OFF_BUS};

use super::source::Source;

/// Every source of the scan core, in the order in which they look at a device: first those that can neither wake nor
/// hang.
pub static ALL: &[&dyn Source] = &[
    &scan::Scan,
    &scan::Probe,
    &node::Node,
    &path::Path,
    &mig_device::MigDevice,
    &device_dump::DeviceDump,
    &pci_driver::PciDriver,
    &pci_power::PciPower,
    &pci_aer::PciAer::FATAL,
    &pci_aer::PciAer::NONFATAL,
    &pci_aer::PciAer::CORRECTABLE,
    &pci_aer::PciAer::CORRECTABLE_RATE,
    &pci_config::PciConfig,
    &pci_link::PciLink,
    &temperature::Temperature::OF_CARD,
    &temperature::Temperature::OF_GPU,
    &fpga_errors::FpgaErrors,
    &fpga_manager::FpgaManager,
    &fpga_power::FpgaPower,
    &fabric_manager::FabricManager,
    &rdma_port::RdmaPort,
    &rdma_rate::RdmaRate,
    &rdma_link::RdmaLink::DOWNED,
    &rdma_link::RdmaLink::FLAPS,
    &rdma_errors::RdmaErrors,
    &amd_ras::Errors,
    &amd_ras::BadPages,
    &xe_health::XeHealth::CRITICAL,
    &xe_health::XeHealth::WARNING,
    &class_health::ClassHealth,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::health::reasons;
    use crate::health::source::Clears;

    #[test]
    fn every_source_is_named_once_and_registers_what_it_may_say() {
        let all: Vec<_> = ALL.iter().map(|source| source.about()).chain(reasons::ELSEWHERE).collect();
        let names: BTreeSet<_> = all.iter().map(|about| about.name).collect();
        assert_eq!(names.len(), all.len());
        for about in all {
            assert!(!about.name.is_empty() && !about.document.is_empty() && !about.meanings.is_empty(), "{about:?}");
            let reasons: BTreeSet<_> = about.meanings.iter().map(|meaning| meaning.reason).collect();
            assert_eq!(reasons.len(), about.meanings.len(), "{about:?}");
            for of_value in
                about.meanings.iter().flat_map(|meaning| meaning.by_value.iter().map(move |one| (meaning, one)))
            {
                let (meaning, (value, one)) = of_value;
                assert!(one.reason == meaning.reason && one.by_value.is_empty() && !value.is_empty(), "{meaning:?}");
            }
            let of_values = about.meanings.iter().flat_map(|meaning| meaning.by_value).map(|(_, meaning)| meaning);
            for meaning in about.meanings.iter().chain(of_values) {
                let is_word = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
                assert!(meaning.reason.bytes().all(is_word) && !meaning.threshold.is_empty(), "{meaning:?}");
                assert!(!meaning.to_do.is_empty(), "{meaning:?}");
                assert!(!meaning.to_do.is_empty(), "{meaning:?}");
                assert!(meaning.clears != Clears::Quiet(0) && meaning.clears != Clears::Until(&[]), "{meaning:?}");
            }
        }
    }

    #[test]
    fn the_words_that_users_rely_on_are_registered() {
        let reported: BTreeSet<_> =
            ALL.iter().flat_map(|source| source.about().meanings).map(|meaning| meaning.reason).collect();
        let expected = [
            "class",
            "device-dump",
            "driver-unbound",
            "ecc",
            "fabric",
            "firmware",
            "fme-error",
            "gone",
            "link-degraded",
            "link-downed",
            "link-errors",
            "link-flapping",
            "node-missing",
            "off-bus",
            "pci-aer",
            "port-down",
            "port-error",
            "power-state",
            "power-throttled",
            "probe-timeout",
            "shell-lost",
            "shell-unreadable",
            "temperature",
            "unprogrammed",
        ];
        assert_eq!(reported, expected.into());
    }

    #[test]
    fn every_reading_and_every_finding_of_a_scan_is_of_a_registered_word() {
        let registered = |source: &str, reason: &str| {
            let about = ALL.iter().map(|source| source.about()).find(|about| about.name == source);
            about.is_some_and(|about| about.meanings.iter().any(|meaning| meaning.reason == reason))
        };
        let readings = [
            fpga_errors::of_port("x"),
            fpga_errors::of_engine("x"),
            fpga_power::of_port("x"),
            fpga_manager::of_manager("x"),
            temperature::below("x", 1, None),
            temperature::of_gpu("x", 1, None),
            temperature::alarm("x"),
        ];
        for reading in readings {
            assert!(registered(reading.source, &reading.reason), "{reading:?}");
        }
        let words = [
            scan::NODE_MISSING,
            scan::DRIVER_UNBOUND,
            scan::UNPROGRAMMED,
            scan::PORT_ERROR,
            scan::FME_ERROR,
            scan::SHELL_UNREADABLE,
        ];
        for word in words {
            let finding = scan::finding(word, "/sys/x", "");
            assert!(registered(&finding.source, &finding.reason), "{word}");
        }
        let overdue = scan::probe_timeout(std::time::Duration::from_secs(2), "/sys/x");
        assert!(registered(&overdue.source, &overdue.reason));
    }
}
