//! The settings that Python passes to the scan: the validated parts of the configuration, as JSON.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::edits::Way;
use crate::host::Host;
use crate::nvml::NvmlSettings;
use crate::vendors::table::{Options, ROWS, Surroundings};

/// All settings of a scan. Python sends every one of them: the defaults are in its models.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Whether the host is a tree of `devherd sim node`, where plain files may stand for device nodes.
    pub simulated_host: bool,
    /// Deadline of a probe, in seconds.
    #[serde(deserialize_with = "seconds")]
    pub probe_timeout: Duration,
    /// Where NVML's facts come from.
    pub nvml: NvmlSettings,
    /// The ways in which containers get devices on this host.
    pub ways: BTreeSet<Way>,
    /// Options of each vendor.
    pub vendors: Options,
}

fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let number = f64::deserialize(deserializer)?;
    let deadline = Duration::try_from_secs_f64(number).ok().filter(|deadline| !deadline.is_zero());
    deadline.ok_or_else(|| D::Error::custom(format!("probe_timeout: {number} is not a positive number of seconds")))
}

impl Settings {
    /// Settings from the JSON of `devherd.config.Config.native_json`.
    ///
    /// # Errors
    /// Names the key that is invalid, and why.
    pub fn from_json(json: &str) -> Result<Self, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    /// The host whose files are below `root`.
    #[must_use]
    pub fn host(&self, root: &str) -> Host {
        if self.simulated_host { Host::simulated(root) } else { Host::new(root) }
    }

    /// Whether both settings are the same for a vendor; if so, the vendor keeps its state.
    #[must_use]
    pub fn agree_on(&self, other: &Self, vendor: &str) -> bool {
        let Some(row) = ROWS.iter().find(|row| row.name == vendor) else { return false };
        self.vendors.agree_on(&other.vendors, vendor)
            && (!row.uses_nvml || (self.probe_timeout, &self.nvml) == (other.probe_timeout, &other.nvml))
            && (!row.uses_ways || self.ways == other.ways)
    }

    /// The settings that vendors get besides their options.
    #[must_use]
    pub fn surroundings(&self) -> Surroundings {
        Surroundings { patience: self.probe_timeout, nvml: self.nvml.clone(), ways: self.ways.clone() }
    }
}

/// Python's defaults with these changes.
#[cfg(test)]
pub(crate) fn made(change: &serde_json::Value) -> Settings {
    Settings::from_json(&crate::vendors::testing::json(change)).unwrap()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::vendors::generic::GenericKind;
    use crate::vendors::intel_fpga::IntelFpgaMode;
    use crate::vendors::testing;

    #[test]
    fn pythons_default_configuration_means_every_vendor() {
        let settings = made(&json!({}));
        assert!(settings.vendors.intel_fpga.enabled);
        assert_eq!(settings.probe_timeout, Duration::from_secs(2));
        assert_eq!(settings.ways, BTreeSet::from([Way::DevicePlugin]));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_its_place() {
        let resource = json!({"name": "a/b", "count": -1, "numa_nodes": 0});
        for (change, complaint) in [
            (json!({"probe_timeout": "2s"}), "invalid type"),
            (json!({"probe_timeout": 0}), "probe_timeout"),
            (json!({"probe_timeout": -1}), "probe_timeout"),
            (json!({"probe_timeout": 1e300}), "probe_timeout"),
            (json!({"vendors": {"intel_fpga": {"mode": "partial"}}}), "partial"),
            (json!({"vendor": {}}), "vendor"),
            (json!({"ways": ["cri"]}), "cri"),
            (json!({"vendors": {"simulated": [resource]}}), "-1"),
        ] {
            let error = Settings::from_json(&testing::json(&change)).unwrap_err();
            assert!(error.contains(complaint), "{change}: {error}");
        }
        for (text, complaint) in [("", "EOF"), ("1", "line 1"), ("{}", "missing field")] {
            let error = Settings::from_json(text).unwrap_err();
            assert!(error.contains(complaint), "{text}: {error}");
        }
    }

    #[test]
    fn an_option_that_python_does_not_give_is_refused() {
        let mut whole: serde_json::Value = serde_json::from_str(&testing::json(&json!({}))).unwrap();
        whole["vendors"]["rdma"].as_object_mut().unwrap().remove("mode");
        assert!(Settings::from_json(&whole.to_string()).unwrap_err().contains("missing field `mode`"));
    }

    #[test]
    fn a_vendor_whose_scan_depends_on_the_ways_starts_again_where_they_change_and_no_other() {
        let one = made(&json!({}));
        let both = made(&json!({"ways": ["device-plugin", "cdi"]}));
        assert_eq!(both.surroundings().ways, BTreeSet::from([Way::DevicePlugin, Way::Cdi]));
        assert!(!one.agree_on(&both, "nvidia"));
        assert!(!one.agree_on(&both, "rdma"));
        assert!(one.agree_on(&both, "amd"));
    }

    #[test]
    fn modes_and_generic_keys_are_spelt_as_in_the_config_file() {
        let member = testing::member("/x", &json!({"mountPath": "/y", "type": "Mount"}));
        let settings = made(
            &json!({"vendors": {"intel_fpga": {"mode": "regiondevel"}, "generic": [testing::generic("a/b", &[member])]}}),
        );
        assert_eq!(settings.vendors.intel_fpga.mode, IntelFpgaMode::RegionDevel);
        let path = &settings.vendors.generic[0].groups[0].paths[0];
        assert_eq!((path.mount_path.as_str(), path.kind, path.limit), ("/y", GenericKind::Mount, 1));
    }
}
