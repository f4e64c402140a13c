//! What the Python side tells the scan: the validated parts of the config file, as JSON.

use std::time::Duration;

use serde::Deserialize;

use crate::vendors::amd::AmdOptions;
use crate::vendors::intel_gpu::IntelGpuOptions;
use crate::vendors::nvidia::NvidiaOptions;
use crate::vendors::rdma::RdmaOptions;
use crate::vendors::xilinx_fpga::XilinxFpgaOptions;

/// Used when the settings name no deadline that is one.
const PATIENCE: Duration = Duration::from_secs(2);

/// Everything a scan can be told.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Seconds a probe may take.
    pub probe_timeout: f64,
    /// Options of each vendor.
    pub vendors: Vendors,
    /// Devices named by path or USB id.
    pub generic: Vec<GenericDevice>,
    /// Devices that exist only as names.
    pub simulated: Vec<SimulatedDevice>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { probe_timeout: 2.0, vendors: Vendors::default(), generic: Vec::new(), simulated: Vec::new() }
    }
}

impl Settings {
    /// Settings from the JSON of `devherd.config.Config.native_json`.
    ///
    /// # Errors
    /// What does not fit, and where.
    pub fn from_json(json: &str) -> Result<Self, String> {
        let settings: Self = serde_json::from_str(json).map_err(|error| error.to_string())?;
        settings
            .probe_deadline()
            .ok_or_else(|| format!("probe_timeout: {} is no positive number of seconds", settings.probe_timeout))?;
        Ok(settings)
    }

    /// How long a probe may take, whatever has been said.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.probe_deadline().unwrap_or(PATIENCE)
    }

    /// Whether a vendor is told the same by other settings.
    #[must_use]
    pub fn tell_the_same(&self, other: &Self, vendor: &str) -> bool {
        let (one, two) = (&self.vendors, &other.vendors);
        match vendor {
            "intel-fpga" => one.intel_fpga == two.intel_fpga,
            "nvidia" => one.nvidia == two.nvidia,
            "amd" => one.amd == two.amd,
            "intel-gpu" => one.intel_gpu == two.intel_gpu,
            "xilinx-fpga" => one.xilinx_fpga == two.xilinx_fpga,
            "rdma" => one.rdma == two.rdma,
            _ => false, // the others remember nothing between two scans
        }
    }

    /// How long a probe may take; `None` when that is no time at all.
    #[must_use]
    pub fn probe_deadline(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.probe_timeout).ok().filter(|deadline| !deadline.is_zero())
    }
}

/// Options of each vendor.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Vendors {
    /// Intel FPGA.
    pub intel_fpga: IntelFpgaOptions,
    /// NVIDIA GPU.
    pub nvidia: NvidiaOptions,
    /// AMD GPU.
    pub amd: AmdOptions,
    /// Intel GPU.
    pub intel_gpu: IntelGpuOptions,
    /// Xilinx FPGA.
    pub xilinx_fpga: XilinxFpgaOptions,
    /// RDMA.
    pub rdma: RdmaOptions,
}

/// Options of the Intel FPGA vendor.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IntelFpgaOptions {
    /// Whether to look for it.
    pub enabled: bool,
    /// What is advertised.
    pub mode: IntelFpgaMode,
}

impl Default for IntelFpgaOptions {
    fn default() -> Self {
        Self { enabled: true, mode: IntelFpgaMode::default() }
    }
}

/// What is advertised of an Intel FPGA.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IntelFpgaMode {
    /// Ports, by the accelerator function loaded in them.
    #[default]
    Af,
    /// Regions, programmed through the OCI hook.
    Region,
    /// Regions with their management engine's node.
    RegionDevel,
}

/// One device of generic-device-plugin's config: alternatives under one resource name.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GenericDevice {
    /// Full resource name.
    pub name: String,
    /// Alternatives, all advertised.
    pub groups: Vec<GenericGroup>,
}

/// Paths or USB devices that go into a container together.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GenericGroup {
    /// How often the group may be allocated at once.
    pub count: u32,
    /// Members by path.
    pub paths: Vec<GenericPath>,
    /// Members by USB id.
    pub usb: Vec<GenericUsb>,
}

impl Default for GenericGroup {
    fn default() -> Self {
        Self { count: 1, paths: Vec::new(), usb: Vec::new() }
    }
}

/// A member by path.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct GenericPath {
    /// Glob on host paths.
    pub path: String,
    /// Path in the container; a trailing slash appends the host path's base name; empty = the host path.
    pub mount_path: String,
    /// Device node or bind mount.
    #[serde(rename = "type")]
    pub kind: GenericKind,
    /// Of a device node.
    pub permissions: String,
    /// Of a mount.
    pub read_only: bool,
    /// How often each match may be used inside the group.
    pub limit: u32,
    /// Whether no match leaves the member out.
    pub optional: bool,
}

impl Default for GenericPath {
    fn default() -> Self {
        Self {
            path: String::new(),
            mount_path: String::new(),
            kind: GenericKind::Device,
            permissions: "mrw".to_owned(),
            read_only: false,
            limit: 1,
            optional: false,
        }
    }
}

/// How a path reaches the container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum GenericKind {
    /// As a device node.
    #[default]
    Device,
    /// As a bind mount.
    Mount,
}

/// A member by USB id, four hexadecimal digits each.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GenericUsb {
    /// `idVendor`.
    pub vendor: String,
    /// `idProduct`.
    pub product: String,
    /// `serial`, any when absent.
    pub serial: Option<String>,
}

/// Devices that exist only as names.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SimulatedDevice {
    /// Full resource name.
    pub name: String,
    /// How many; their ids are `<last part of the name>-0` and on.
    pub count: u32,
    /// How many NUMA nodes they are spread over; 0 = unknown.
    pub numa_nodes: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_said_means_every_vendor_with_its_defaults() {
        let settings = Settings::from_json("{}").unwrap();
        assert_eq!(settings, Settings::default());
        assert!(settings.vendors.intel_fpga.enabled);
        assert_eq!(settings.probe_deadline(), Some(Duration::from_secs(2)));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_its_place() {
        for (json, complaint) in [
            ("", "EOF"),
            ("1", "line 1"),
            (r#"{"probe_timeout": "2s"}"#, "invalid type"),
            (r#"{"probe_timeout": 0}"#, "probe_timeout"),
            (r#"{"probe_timeout": -1}"#, "probe_timeout"),
            (r#"{"probe_timeout": 1e300}"#, "probe_timeout"),
            (r#"{"vendors": {"intel_fpga": {"mode": "partial"}}}"#, "partial"),
            (r#"{"vendor": {}}"#, "vendor"),
            (r#"{"simulated": [{"name": "a/b", "count": -1}]}"#, "-1"),
        ] {
            let error = Settings::from_json(json).unwrap_err();
            assert!(error.contains(complaint), "{json}: {error}");
        }
    }

    #[test]
    fn modes_and_generic_keys_are_spelt_as_in_the_config_file() {
        let json = r#"{"vendors": {"intel_fpga": {"mode": "regiondevel"}},
                       "generic": [{"name": "a/b", "groups": [{"paths": [{"path": "/x", "mountPath": "/y", "type": "Mount"}]}]}]}"#;
        let settings = Settings::from_json(json).unwrap();
        assert_eq!(settings.vendors.intel_fpga.mode, IntelFpgaMode::RegionDevel);
        let path = &settings.generic[0].groups[0].paths[0];
        assert_eq!((path.mount_path.as_str(), path.kind, path.limit), ("/y", GenericKind::Mount, 1));
    }
}
